"""HKDF-SHA256 (RFC 5869), in one place so that every derived secret names its purpose."""

from __future__ import annotations

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from freehold.secret import Secret


def derive(secret: Secret, info: bytes) -> Secret:
    """32 bytes for the purpose ``info``; different purposes give unrelated secrets."""
    return Secret(HKDF(SHA256(), length=32, salt=None, info=info).derive(secret.reveal()))
