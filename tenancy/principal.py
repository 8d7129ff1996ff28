"""Who is calling: what authentication proves and everything behind it relies on.

A principal names a tenant, the account its cache is charged to, and the key that was used; it
holds no secret and no quota (quotas belong to the tenant, never to the key).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freehold.protocol import AccountId
    from tenancy.ids import KeyId, TenantId


class Scope(StrEnum):
    """What a key may be used for."""

    INFERENCE = "inference"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """Made by ``Authenticator`` only. ``key_id`` is what audit records name."""

    tenant_id: TenantId
    account_id: AccountId
    key_id: KeyId
    scopes: frozenset[Scope]
