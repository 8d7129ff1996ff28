"""From messages or text to token ids, exactly once a request.

The chat template is the model's own, rendered in transformers' sandbox. Text that a client wrote
never becomes a control token of a chat: where it spells one (``<|im_end|>``), it is fenced while
the template runs and encoded as the plain text that it is. The completions endpoint is the raw
interface: there a client writes the template itself, control tokens included.
"""

# transformers is only partly typed:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from jinja2 import TemplateError
from tokenizers import Tokenizer

from deployments.gateway.control_tokens import (
    Fences,
    any_of,
    control_tokens,
    fence,
    free_fences,
    plain_ids,
    split_fenced,
)
from freehold.errors import InvalidRequest, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A template's output. ``fences`` are the two characters around a client's control tokens."""

    text: str
    fences: Fences | None


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
        controls = control_tokens(self._backend, template or "")
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
        fences = None
        if any(self._controls_re.search(message["content"]) for message in messages):
            fences = free_fences(message["content"] for message in messages)
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
        for piece, is_control in split_fenced(chat.text, chat.fences, self._controls_re):
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

    def _fenced(self, message: ChatMessage, fences: Fences) -> ChatMessage:
        return {**message, "content": fence(message["content"], self._controls_re, fences)}

    def _as_plain_text(self, token: str) -> list[int]:
        ids = self._plain_ids[token]
        if ids is None:
            raise InvalidRequest(
                param="messages", reason=f"must not hold the control token {token!r}"
            )
        return ids


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
