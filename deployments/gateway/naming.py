"""Text → tokens → block keys, for one model and one caller.

The salt ends here: what leaves this module holds keys. Safe in a thread, for long prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deployments.gateway.refusals import ContextLengthExceeded
from freehold.errors import InvalidRequest
from freehold.kv.keys import Chain, ModelIdentity, Span, block_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deployments.gateway.messages import ChatMessage
    from deployments.gateway.prompts import Prompt
    from deployments.gateway.timing import StageTimer
    from deployments.gateway.tokenizer import PromptTokenizer
    from freehold.kv.keys import Domain
    from freehold.protocol import AccountId, ModelCard
    from tenancy.keyring import Keyring


@dataclass(frozen=True, slots=True)
class KeyPath:
    """Whose secrets the keys of a prompt are chained to, the widest first."""

    spans: tuple[Span, ...]
    tail: Domain


def key_path(keyring: Keyring, account_id: AccountId, cache_salt: str | None) -> KeyPath:
    """An end user (``cache_salt``) is a domain inside the tenant's, never in place of it.

    Raises:
        InvalidRequest: ``cache_salt`` is malformed.
    """
    tenant = keyring.tenant_domain(account_id)
    if cache_salt is None:
        return KeyPath((), tenant)
    return KeyPath((Span(0, tenant),), keyring.end_user_domain(account_id, cache_salt))


@dataclass(frozen=True, slots=True)
class NamedTokens:
    token_ids: tuple[int, ...]
    chain: Chain


@dataclass(frozen=True, slots=True)
class Naming:
    card: ModelCard
    tokenizer: PromptTokenizer
    path: KeyPath
    max_prompt_tokens: int
    timer: StageTimer

    def chat(self, messages: Sequence[ChatMessage]) -> NamedTokens:
        """
        Raises:
            InvalidRequest: the template refuses the messages, or they are too long.
        """
        rendered = self.tokenizer.render(messages)
        self.timer.lap("template")
        return self._name(self.tokenizer.encode_chat(rendered), "messages")

    def prompt(self, prompt: Prompt) -> NamedTokens:
        """
        Raises:
            InvalidRequest: too long, or token ids that the model has not.
        """
        if isinstance(prompt.value, str):
            return self._name(self.tokenizer.encode_text(prompt.value), prompt.field)
        if max(prompt.value) >= self.card.vocab_size:
            raise InvalidRequest(prompt.field, f"token ids must be below {self.card.vocab_size}")
        return self._name(prompt.value, prompt.field)

    def text(self, prompt: Prompt) -> str:
        if isinstance(prompt.value, str):
            return prompt.value
        return self.tokenizer.decode(prompt.value)

    def _name(self, token_ids: Sequence[int], field: str) -> NamedTokens:
        self.timer.lap("tokenize")
        if not token_ids:
            raise InvalidRequest(field, "must have at least one token")
        if len(token_ids) > self.max_prompt_tokens:
            raise ContextLengthExceeded(
                field, f"has {len(token_ids)} tokens; at most {self.max_prompt_tokens} are possible"
            )
        chain = block_keys(
            token_ids,
            block_size=self.card.block_size,
            model=ModelIdentity(self.card.fingerprint),
            tail=self.path.tail,
            spans=self.path.spans,
        )
        self.timer.lap("hash")
        return NamedTokens(tuple(token_ids), chain)
