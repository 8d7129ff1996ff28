"""Tokens to text, one at a time: whole characters only, in constant time a token.

Bytes that do not make a character yet are held back; at the end they become U+FFFD. Knows nothing
of stop strings or of how a stream is cut.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freehold.engine.vocabulary import Vocabulary


class Detokenizer:
    """The text of one choice. It continues the prompt, so a leading space is the model's own."""

    def __init__(
        self, vocabulary: Vocabulary, prompt_ids: Iterable[int], *, skip_special_tokens: bool
    ) -> None:
        self._vocabulary = vocabulary
        self._skip_special = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip_next = vocabulary.strips_first_space and all(
            vocabulary.is_special(token_id) for token_id in prompt_ids
        )

    def feed(self, token_id: int) -> str:
        """The characters that this token completes."""
        if self._skip_special and self._vocabulary.is_special(token_id):
            return ""
        data = self._vocabulary.token_bytes(token_id)
        if self._strip_next and data:
            data = data.removeprefix(b" ")
            self._strip_next = False
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What was held back and will never be completed."""
        return self._decoder.decode(b"", final=True)
