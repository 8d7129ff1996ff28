"""What a request has used so far, and whether its answer is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deployments.gateway.ports import ReplicaLost
from deployments.gateway.refusals import GenerationAborted
from freehold.protocol import FinishReason, Usage

if TYPE_CHECKING:
    from freehold.protocol import Delta


class UsageMeter:
    """Cumulative usage by prompt, and whether every choice has ended."""

    def __init__(self, num_choices: int) -> None:
        self._num_unfinished = num_choices
        self._by_prompt: dict[int, Usage] = {}

    def take(self, prompt_index: int, delta: Delta) -> None:
        """
        Raises:
            GenerationAborted
        """
        self._by_prompt[prompt_index] = delta.usage
        if delta.finish_reason is FinishReason.ABORT:
            raise GenerationAborted
        if delta.finish_reason is not None:
            self._num_unfinished -= 1

    def check_complete(self) -> None:
        """A stream that just stops is a failure, whatever the reason: it must not look complete.

        Raises:
            ReplicaLost
        """
        if self._num_unfinished:
            raise ended_early()

    @property
    def usage(self) -> Usage:
        usages = list(self._by_prompt.values())
        if len(usages) == 1:
            return usages[0]
        cached = {
            medium: sum(usage.cached_by_medium.get(medium, 0) for usage in usages)
            for medium in {medium for usage in usages for medium in usage.cached_by_medium}
        }
        return Usage(
            prompt=sum(usage.prompt for usage in usages),
            cached_by_medium=cached,
            output=sum(usage.output for usage in usages),
        )


def ended_early() -> ReplicaLost:
    return ReplicaLost(reason="its stream ended before the answer did")
