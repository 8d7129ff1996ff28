"""What each token stands for, in bytes: read once from a tokenizer's own description.

Decides how a spelled token becomes bytes (byte-level BPE, or pieces with a space mark and byte
fallback); refuses a tokenizer that decodes in any other way. Sequences of tokens are not its
business.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol, cast

from freehold.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Mapping

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class _AddedToken(Protocol):
    @property
    def special(self) -> bool: ...


class _Backend(Protocol):
    """The part of ``tokenizers.Tokenizer`` that is used here."""

    def id_to_token(self, id: int) -> str | None: ...  # noqa: A002 - the library's name
    def get_added_tokens_decoder(self) -> Mapping[int, _AddedToken]: ...
    def to_str(self) -> str: ...


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    @property
    def backend_tokenizer(self) -> _Backend: ...
    @property
    def all_special_ids(self) -> list[int]: ...


class Vocabulary:
    """Token id → bytes, remembered; ids that the tokenizer does not know stand for nothing."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises UnsupportedModel if the tokenizer's way of decoding is not known here."""
        self._backend = tokenizer.backend_tokenizer
        added = self._backend.get_added_tokens_decoder()
        self._special = frozenset(i for i, token in added.items() if token.special)
        self._special |= frozenset(tokenizer.all_special_ids)
        self._added = frozenset(added)
        kinds = _decoder_steps(self._backend)
        names = [str(step["type"]) for step in kinds]
        self._is_byte_level = "ByteLevel" in names
        self._spaces = [_space_mark(step) for step in kinds if _space_mark(step)]
        self.strips_first_space = "Strip" in names or any(
            step["type"] == "Metaspace" and step.get("prepend_scheme") != "never" for step in kinds
        )
        """The text's very first space is the tokenizer's own, not the writer's."""
        known = {"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
        if not names or not set(names) <= known:
            reason = f"it decodes by {', '.join(names) or 'nothing known'}"
            raise UnsupportedModel(type(tokenizer).__name__, reason)
        self._bytes: dict[int, bytes] = {}

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special

    def token_bytes(self, token_id: int) -> bytes:
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spelled_bytes(token_id)
        return known

    def _spelled_bytes(self, token_id: int) -> bytes:
        piece = self._backend.id_to_token(token_id)
        if piece is None:
            return b""
        if self._is_byte_level:
            # Added tokens are spelled in plain text; it may hold what no byte is written as.
            values = [_BYTE_OF.get(char) for char in piece]
            if None in values:
                return piece.encode()
            return bytes(cast("list[int]", values))
        byte = _BYTE_PIECE.fullmatch(piece)
        if byte and token_id not in self._added:
            return bytes([int(byte[1], 16)])
        for mark in self._spaces:
            piece = piece.replace(mark, " ")
        return piece.encode()


def _decoder_steps(backend: _Backend) -> list[dict[str, Any]]:
    """The decoder as the tokenizer's JSON describes it, flattened."""
    decoder: dict[str, Any] | None = json.loads(backend.to_str())["decoder"]
    if decoder is None:
        return []
    return decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]


def _space_mark(step: Mapping[str, Any]) -> str:
    if step["type"] == "Metaspace":
        return str(step["replacement"])
    if step["type"] == "Replace" and step["content"] == " ":
        return str(step["pattern"].get("String", ""))
    return ""


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE spells each byte as one visible character (GPT-2's table)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in visible}
    hidden = (byte for byte in range(256) if byte not in visible)
    return alphabet | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
