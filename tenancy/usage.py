"""What a finished request is billed for, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from freehold.protocol import RequestId, Usage
    from tenancy.ids import KeyId, TenantId


class Outcome(StrEnum):
    """How a request ended. Tokens are charged whatever the outcome."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    """The client went away."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class UsageRecord:
    request_id: RequestId
    tenant_id: TenantId
    key_id: KeyId
    model: str
    usage: Usage
    outcome: Outcome


class UsageSink(Protocol):
    def record(self, record: UsageRecord) -> None:
        """Take a record over into the sink's own bounded spool: neither waits nor raises.

        A second record of one request id is dropped.
        """
        ...
