"""A request and its choices while they run: token ids, how far they are computed, their blocks.

State is what cannot be derived; everything else is a property. Knows no text and no tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freehold.protocol import DEVICE, FinishReason, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from freehold.kv.cache import BlockTable
    from freehold.protocol import GenerateRequest, RequestId


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice of a request.

    ``[0, num_computed)`` have K and V in the slots of ``table``. A sequence whose table is empty
    waits: it was never admitted, or was preempted and computes its tokens again.
    """

    group: RequestGroup
    index: int
    table: BlockTable
    token_ids: list[int]
    num_computed: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    awaited: Awaited | None = None
    """What it waits for before it starts, if another sequence is computing its prefix."""
    num_prefix_waits: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """First come, first served; choices of one request in their own order."""
        return (self.group.number, self.index)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_prompt(self) -> int:
        return len(self.group.request.token_ids)

    @property
    def num_output(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def num_uncomputed(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def is_running(self) -> bool:
        """It holds slots for all its tokens."""
        return bool(self.table.block_ids)

    @property
    def has_prompt(self) -> bool:
        """Its prompt's K and V are in its blocks."""
        return self.is_running and self.num_computed >= self.num_prompt

    @property
    def is_decoding(self) -> bool:
        """Only the token sampled last is left to compute."""
        return self.num_computed >= self.num_prompt and self.num_uncomputed == 1


@dataclass(frozen=True, slots=True)
class Awaited:
    """Block ``block`` is the last one of a waiter's prefix that ``producer`` is computing."""

    block: int
    producer: Sequence


@dataclass(slots=True, eq=False)
class RequestGroup:
    """A request with its ``n`` choices; ``number`` is the order of arrival."""

    request: GenerateRequest
    number: int
    arrived_s: float
    sequences: list[Sequence] = field(default_factory=list[Sequence])
    cached_tokens: int | None = None
    """Prompt tokens found in the cache at first admission; None before. Tokens that a preempted
    sequence finds again are no discount: the request has paid for them once."""
    scheduled_s: float | None = None
    """From arrival to the first step that computed a token of it."""
    has_emitted: bool = False

    def add_choices(self, open_table: Callable[[GenerateRequest], BlockTable]) -> None:
        """One sequence for each of the ``n`` choices."""
        for index in range(self.request.sampling.n):
            table = open_table(self.request)
            self.sequences.append(Sequence(self, index, table, list(self.request.token_ids)))

    @property
    def request_id(self) -> RequestId:
        return self.request.request_id

    @property
    def is_finished(self) -> bool:
        return all(sequence.is_finished for sequence in self.sequences)

    @property
    def deadline_s(self) -> float | None:
        """On the engine's clock."""
        budget = self.request.deadline_s
        return None if budget is None else self.arrived_s + budget

    @property
    def usage(self) -> Usage:
        """The prompt counts once: further choices fork from the first one's."""
        return Usage(
            prompt=len(self.request.token_ids),
            cached_by_medium={DEVICE: self.cached_tokens or 0},
            output=sum(sequence.num_output for sequence in self.sequences),
        )
