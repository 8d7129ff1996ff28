"""Chained block keys: the salt is in the chain, so no tier, router or pool can forget it.

    H(tag, fields…) = first 16 bytes of SHA-256 over length-prefixed tag and fields
    root            = H("root", "v1", salt(outermost domain), model fingerprint, adapter id)
    key[i]          = H("block", parent, tokens of block i as u32 little-endian)
    at a boundary   : parent' = H("boundary", parent, salt(narrower domain))

The one place that makes keys: the gateway for prompts, the engine (``extend``) for decode.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from freehold.protocol import BlockKey, Owner, Region

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freehold.secret import Secret

KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What the cached numbers depend on besides the tokens."""

    fingerprint: str
    adapter_id: str = ""


@dataclass(frozen=True, slots=True)
class Domain:
    """Who may find a block (``salt``) and who is charged for it (``owner``)."""

    owner: Owner
    salt: Secret


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens ``[end of the span before, end_token)`` belong to ``domain``.

    The boundary rounds down to a block: a straddling block belongs to the narrower domain. Spans
    go from the widest domain to the narrowest; an empty one only mixes its salt in.
    """

    end_token: int
    domain: Domain


@dataclass(frozen=True, slots=True)
class Chain:
    """The keys of a prompt, as a ``GenerateRequest`` carries them."""

    block_keys: tuple[BlockKey, ...]
    next_parent: BlockKey
    regions: tuple[Region, ...]
    tail: Owner


def block_keys(
    token_ids: Sequence[int],
    *,
    block_size: int,
    model: ModelIdentity,
    tail: Domain,
    spans: Sequence[Span] = (),
) -> Chain:
    """Name every full block of ``token_ids``; blocks behind the last span belong to ``tail``.

    Raises:
        ValueError: a span ends before the one in front of it, or behind the tokens.
    """
    _check_spans(spans, len(token_ids))
    data = token_bytes(token_ids)
    width = 4 * block_size
    num_full = len(token_ids) // block_size
    domains = [*(span.domain for span in spans), tail]
    ends = [*(span.end_token // block_size for span in spans), num_full]

    parent = root_key(domains[0].salt, model)
    keys: list[BlockKey] = []
    regions: list[Region] = []
    for i, (domain, end) in enumerate(zip(domains, ends, strict=True)):
        if i:
            parent = boundary_key(parent, domain.salt)
        if end > len(keys) and i < len(spans):
            regions.append(Region(end, domain.owner.account_id, domain.owner.epoch_id))
        for block in range(len(keys), end):
            parent = _block_key(parent, data[block * width : (block + 1) * width])
            keys.append(parent)
    return Chain(tuple(keys), parent, tuple(regions), tail.owner)


def extend(parent: BlockKey, block_token_ids: Sequence[int]) -> BlockKey:
    """The key of the full block that follows ``parent``."""
    return _block_key(parent, token_bytes(block_token_ids))


def root_key(salt: Secret, model: ModelIdentity) -> BlockKey:
    fields = (salt.reveal(), model.fingerprint.encode(), model.adapter_id.encode())
    return _digest(b"root", b"v1", *fields)


def boundary_key(parent: BlockKey, salt: Secret) -> BlockKey:
    return _digest(b"boundary", parent, salt.reveal())


def token_bytes(token_ids: Sequence[int]) -> bytes:
    """Token ids as u32 little-endian.

    Raises:
        OverflowError: an id is negative or does not fit 32 bits.
    """
    packed = array("I", token_ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _block_key(parent: BlockKey, tokens: bytes) -> BlockKey:
    return _digest(b"block", parent, tokens)


def _digest(*fields: bytes) -> BlockKey:
    framed = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    return BlockKey(hashlib.sha256(framed).digest()[:KEY_BYTES])


def _check_spans(spans: Sequence[Span], num_tokens: int) -> None:
    ends = [0, *(span.end_token for span in spans), num_tokens]
    if any(a > b for a, b in pairwise(ends)):
        message = f"spans must be ordered and end within {num_tokens} tokens, got {ends[1:-1]}"
        raise ValueError(message)
