"""Names of things in the control plane, made and checked in one place.

A tenant id is a slug that people choose; every other id is random. None is secret: ids may be
logged, account ids even reach the engines.
"""

from __future__ import annotations

import re
import secrets
from typing import NewType

from freehold.errors import InvalidRequest
from freehold.protocol import AccountId, EpochId

TenantId = NewType("TenantId", str)
"""``[a-z0-9][a-z0-9-]{0,62}``: fits a label of Kubernetes, DNS and Prometheus."""
KeyId = NewType("KeyId", str)
"""The public part of an API key."""
PepperId = NewType("PepperId", str)
MasterKeyId = NewType("MasterKeyId", str)

_PARAM = "tenant"
_TENANT_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def parse_tenant_id(text: str) -> TenantId:
    """The text does not appear in the error: it may be a pasted API key.

    Raises:
        InvalidRequest: not a slug.
    """
    if _TENANT_ID.fullmatch(text) is None:
        raise InvalidRequest(
            _PARAM,
            "expected 1 to 63 lower-case letters, digits and hyphens, not starting with a hyphen",
        )
    return TenantId(text)


def new_account_id() -> AccountId:
    return AccountId(f"tn_{secrets.token_hex(16)}")


def new_epoch_id() -> EpochId:
    return EpochId(secrets.token_hex(16))


def new_pepper_id() -> PepperId:
    return PepperId(secrets.token_hex(16))
