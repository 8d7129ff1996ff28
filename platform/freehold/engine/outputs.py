"""What one step, or one abort, has to tell the streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freehold.errors import FreeholdError
    from freehold.protocol import Delta, RequestId, Usage


@dataclass(frozen=True, slots=True)
class Ended:
    """A request is over and holds nothing any more; ``error`` if it did not run to its end."""

    request_id: RequestId
    usage: Usage
    error: FreeholdError | None = None


@dataclass(slots=True)
class StepOutput:
    """What to tell the streams: deltas in order, then who ended."""

    deltas: list[tuple[RequestId, Delta]] = field(default_factory=list["tuple[RequestId, Delta]"])
    ended: list[Ended] = field(default_factory=list[Ended])
    failure: Exception | None = None
    """What the device threw, for the log; the requests got a ``StepFailed``."""
