"""Fields to bytes without ambiguity: ("org_1", "2345") and ("org_12345", "") differ."""

from __future__ import annotations

import struct


def frame(*fields: bytes) -> bytes:
    """Each field behind its length as u32 little-endian; injective for every list of fields."""
    return b"".join(struct.pack("<I", len(field)) + field for field in fields)
