"""What other processes learn of this cache: which keys became findable here, and which no longer are.

Names and fields follow vLLM's KV events, without token ids and with the account. Knows neither a
salt nor a prompt. Whoever replays the events in order knows exactly what is findable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from freehold.protocol import DEVICE, AccountId, BlockKey, Medium

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class BlockStored:
    """A run of blocks became findable; each is the parent of the next.

    ``parent_block_hash`` is the block in front of the first one, None at a prompt's beginning.
    """

    block_hashes: tuple[BlockKey, ...]
    parent_block_hash: BlockKey | None
    block_size: int
    account_id: AccountId
    medium: Medium = DEVICE


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """These blocks of one account are not findable any more."""

    block_hashes: tuple[BlockKey, ...]
    account_id: AccountId
    medium: Medium = DEVICE


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is findable; what follows starts from nothing."""


BlockEvent: TypeAlias = BlockStored | BlockRemoved
KVEvent: TypeAlias = BlockEvent | AllBlocksCleared


class EventLog:
    """Events of single blocks since the last drain, in bounded memory.

    With more than ``max_events`` undrained ones the log keeps none and the next drain tells the
    whole state instead: cleared, then everything ``snapshot`` yields. Nothing is ever lost, so a
    reader that comes late, or never, costs nothing.
    """

    def __init__(self, max_events: int, snapshot: Callable[[], Iterable[BlockStored]]) -> None:
        self._max_events = max_events
        self._snapshot = snapshot
        self._events: list[BlockEvent] = []
        self._overflowed = False

    def append(self, event: BlockEvent) -> None:
        if self._overflowed:
            return
        self._events.append(event)
        if len(self._events) > self._max_events:
            self._events.clear()
            self._overflowed = True

    def drain(self) -> Sequence[KVEvent]:
        """Everything since the last call, in order; neighbours that belong together are one."""
        if self._overflowed:
            self._overflowed = False
            return [AllBlocksCleared(), *_merge(self._snapshot())]
        events, self._events = self._events, []
        return _merge(events)


def _merge(events: Iterable[BlockEvent]) -> Sequence[BlockEvent]:
    runs: list[list[BlockEvent]] = []
    for event in events:
        if runs and _continues(runs[-1][-1], event):
            runs[-1].append(event)
        else:
            runs.append([event])
    return [_join(run) for run in runs]


def _continues(previous: BlockEvent, event: BlockEvent) -> bool:
    match previous, event:
        case BlockStored(), BlockStored():
            same_account = previous.account_id == event.account_id
            return same_account and previous.block_hashes[-1] == event.parent_block_hash
        case BlockRemoved(), BlockRemoved():
            return previous.account_id == event.account_id
        case _:
            return False


def _join(run: Sequence[BlockEvent]) -> BlockEvent:
    if len(run) == 1:
        return run[0]
    hashes = chain.from_iterable(event.block_hashes for event in run)
    return replace(run[0], block_hashes=tuple(hashes))
