"""From messages or text to token ids, exactly once a request.

The chat template is the model's own, rendered in transformers' sandbox. Text that a client wrote
never becomes a control token of a chat: where it spells one (``<|im_end|>``), it is fenced while
the template runs and encoded as the plain text that it is. The completions endpoint is the raw
interface: there a client writes the template itself, control tokens included.
"""

# transformers is only partly typed:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from jinja2 import TemplateError
from tokenizers import Tokenizer

from freehold.errors import InvalidRequest, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from transformers import TokenizersBackend

    from deployments.gateway.messages import ChatMessage

# What a model's template raises depends on its author; none of these is the service's fault.
_TEMPLATE_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_NONCHARACTERS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Unicode keeps them for a program's own use; no tokenizer or template knows them."""


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A template's output. ``fences`` are the two characters around a client's control tokens."""

    text: str
    fences: tuple[str, str] | None


class PromptTokenizer:
    """Immutable, so that threads may share it: its backend is a copy nobody reconfigures."""

    def __init__(self, tokenizer: TokenizersBackend) -> None:
        self._renderer = tokenizer
        template = _default_template(tokenizer)
        self.has_chat_template = template is not None
        self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = False
        controls = _control_tokens(self._backend, template or "")
        self._controls_re = any_of(controls)
        self._plain_ids = {
            token: plain_ids(self._backend, token, token_id) for token, token_id in controls.items()
        }
        self._guard_ids = self._ids("\n") if _adds_prefix(self._backend) else []

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """
        Raises:
            UnsupportedModel: it has a slow tokenizer only.
        """
        # Imported here because it takes seconds, which not every importer should wait for.
        from transformers import AutoTokenizer, TokenizersBackend

        tokenizer = AutoTokenizer.from_pretrained(folder)
        if not isinstance(tokenizer, TokenizersBackend):
            raise UnsupportedModel(str(folder), "it has no fast tokenizer (tokenizer.json)")
        return cls(tokenizer)

    def render(self, messages: Sequence[ChatMessage]) -> RenderedChat:
        """
        Raises:
            InvalidRequest: the model has no template, or its template refuses these messages.
        """
        if not self.has_chat_template:
            raise InvalidRequest(
                param="messages", reason="this model has no chat template; use /v1/completions"
            )
        fences = self._fences(messages)
        if fences is not None:
            messages = [self._fenced(message, fences) for message in messages]
        try:
            text = self._renderer.apply_chat_template(
                cast("list[dict[str, str]]", list(messages)),
                tokenize=False,
                add_generation_prompt=True,
            )
        except _TEMPLATE_ERRORS as error:
            raise InvalidRequest(param="messages", reason=_template_words(error)) from error
        return RenderedChat(cast("str", text), fences)

    def encode_chat(self, chat: RenderedChat) -> list[int]:
        """The template writes its own special tokens; none is added here.

        Raises:
            InvalidRequest: a control token in the messages has no other spelling.
        """
        if chat.fences is None:
            return self._ids(chat.text)
        ids: list[int] = []
        for piece, is_control in _split(chat.text, chat.fences, self._controls_re):
            ids += self._as_plain_text(piece) if is_control else self._continued(piece, bool(ids))
        return ids

    def encode_text(self, text: str) -> list[int]:
        """As the model was trained on text: with its beginning-of-sequence token, if it has one."""
        return self._backend.encode(text).ids

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._backend.decode(list(token_ids), skip_special_tokens=False)

    def _ids(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    def _continued(self, piece: str, has_predecessor: bool) -> list[int]:
        """Encode a piece from the middle without the space that some tokenizers put in front."""
        if has_predecessor and self._guard_ids:
            ids = self._ids("\n" + piece)
            if ids[: len(self._guard_ids)] == self._guard_ids:
                return ids[len(self._guard_ids) :]
        return self._ids(piece)

    def _as_plain_text(self, token: str) -> list[int]:
        ids = self._plain_ids[token]
        if ids is None:
            raise InvalidRequest(
                param="messages", reason=f"must not hold the control token {token!r}"
            )
        return ids

    def _fences(self, messages: Sequence[ChatMessage]) -> tuple[str, str] | None:
        if not any(self._controls_re.search(message["content"]) for message in messages):
            return None
        taken = {char for message in messages for char in message["content"]}
        free = [char for char in _NONCHARACTERS if char not in taken]
        if len(free) < 2:
            raise InvalidRequest(
                param="messages", reason="must not hold control tokens and noncharacters"
            )
        return free[0], free[1]

    def _fenced(self, message: ChatMessage, fences: tuple[str, str]) -> ChatMessage:
        content = self._controls_re.sub(
            lambda match: f"{fences[0]}{match.group()}{fences[1]}", message["content"]
        )
        return {**message, "content": content}


def _split(
    text: str, fences: tuple[str, str], controls_re: re.Pattern[str]
) -> Iterable[tuple[str, bool]]:
    """The text in pieces, and whether one is a client's control token.

    A fence that the template has torn from its token is dropped, and still keeps the text on its
    two sides from growing together into a control token.
    """
    opening, closing = fences
    pieces = re.split(f"{opening}({controls_re.pattern}){closing}|[{opening}{closing}]", text)
    for i, piece in enumerate(cast("list[str | None]", pieces)):
        if piece:
            yield piece, i % 2 == 1


def _control_tokens(backend: Tokenizer, template: str) -> dict[str, int]:
    """Special tokens, and added ones that the template writes (Gemma's ``<start_of_turn>``).

    White space is ordinary text, whatever the tokenizer calls it.
    """
    added = backend.get_added_tokens_decoder()
    return {
        token.content: token_id
        for token_id, token in added.items()
        if (token.special or token.content in template) and token.content.strip()
    }


def any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """The longest wins. Of none, matches nothing."""
    words = frozenset(tokens)
    return re.compile(_trie(words) if words else r"(?!)")


def _trie(words: frozenset[str]) -> str:
    """A pattern that looks at each character once: some tokenizers have thousands of control
    tokens, and a plain alternation would try each of them at every ``<`` of a prompt."""
    tails: dict[str, set[str]] = {}
    for word in words - {""}:
        tails.setdefault(word[0], set()).add(word[1:])
    branches = [re.escape(head) + _trie(frozenset(tails[head])) for head in sorted(tails)]
    if not branches:
        return ""
    if len(branches) == 1 and "" not in words:
        return branches[0]
    return f"(?:{'|'.join(branches)})" + ("?" if "" in words else "")


def plain_ids(backend: Tokenizer, token: str, token_id: int) -> list[int] | None:
    """The ids of a control token's letters: the pipeline without its first step, added tokens.

    None when the model itself knows no other spelling.
    """
    text = token if backend.normalizer is None else backend.normalizer.normalize_str(token)
    words = [text]
    if backend.pre_tokenizer is not None:
        words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    ids = [piece.id for word in words for piece in backend.model.tokenize(word)]
    return None if token_id in ids or not ids else ids


def _adds_prefix(backend: Tokenizer) -> bool:
    tokens = backend.encode("x", add_special_tokens=False).tokens
    return bool(tokens) and tokens[0].startswith("▁")


def _default_template(tokenizer: TokenizersBackend) -> str | None:
    try:
        return cast("str", cast("Any", tokenizer).get_chat_template())
    except ValueError:  # none, or several and none of them the default
        return None


def _template_words(error: Exception) -> str:
    if isinstance(error, TemplateError) and error.message:
        return f"the model's chat template refuses them: {error.message[:200]}"
    return "the model's chat template cannot render them"
