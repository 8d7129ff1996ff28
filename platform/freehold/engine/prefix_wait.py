"""Which prompt blocks are being computed now, so that a burst computes a shared prefix once.

Decides whom a sequence waits for, never for how long: a claim ends as soon as the block is
computed, or its producer finishes, fails or is preempted. Keys are salted, so only sequences of
one domain ever wait for each other (a tenant cannot learn what another one computes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freehold.engine.sequence import Awaited
from freehold.protocol import CacheMode

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    from freehold.engine.sequence import Sequence
    from freehold.protocol import BlockKey


class ComputingPrefixes:
    """Block key → the running sequence that will publish it."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._producers: dict[BlockKey, Sequence] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def is_pending(self, waiter: Sequence, awaited: Awaited) -> bool:
        """The producer that ``waiter`` awaits is still at it."""
        return self._producers.get(self._keys(waiter)[awaited.block]) is awaited.producer

    def claim(self, producer: Sequence) -> None:
        """``producer`` was admitted: it computes the prompt blocks that it did not find."""
        if producer.group.request.cache is CacheMode.ON:
            for key in self._keys(producer)[producer.num_computed // self._block_size :]:
                self._producers.setdefault(key, producer)

    def settle(self, producer: Sequence, start: int, end: int) -> None:
        """Tokens ``[start, end)`` of ``producer`` are computed, or will not be by it."""
        size = self._block_size
        for key in self._keys(producer)[start // size : end // size]:
            if self._producers.get(key) is producer:
                del self._producers[key]

    def awaited_by(self, sequence: Sequence) -> Awaited | None:
        """The last block of its prefix that another one computes, None if there is none.

        The last token's block is left out: that token is computed anyway, to have logits.
        """
        if not self._producers or sequence.group.request.cache is CacheMode.OFF:
            return None
        awaited: Awaited | None = None
        num_blocks = (sequence.num_tokens - 1) // self._block_size
        for block, key in enumerate(self._keys(sequence)[:num_blocks]):
            producer = self._producers.get(key)
            if producer is not None:
                awaited = Awaited(block, producer)
            elif awaited is not None:
                break
        return awaited

    @staticmethod
    def _keys(sequence: Sequence) -> Seq[BlockKey]:
        return sequence.group.request.block_keys
