"""The two times that tenancy reads, behind a port so that tests decide them.

Wall time decides expiry; monotonic time decides staleness (a stepped wall clock must not make an
old snapshot look fresh).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point of this process."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
