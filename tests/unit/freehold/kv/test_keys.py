"""Fixed vectors for the key chain, each by an explicit formula and by its constant.

The constants pin the wire format: a change of one of them makes every cache and tier miss.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import pytest

from freehold.kv.keys import (
    Domain,
    ModelIdentity,
    Span,
    block_keys,
    boundary_key,
    extend,
    root_key,
    token_bytes,
)
from freehold.protocol import AccountId, BlockKey, EpochId, Owner, Region
from freehold.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable

FINGERPRINT = "sha256:0123"
MODEL = ModelIdentity(FINGERPRINT)
TENANT_SALT = bytes(range(32))
PUBLIC_SALT = bytes(range(32, 64))
USER_SALT = bytes(range(64, 96))

TENANT = Domain(Owner(AccountId("tn_1"), EpochId("e1")), Secret(TENANT_SALT))
PUBLIC = Domain(Owner(AccountId("pb_1"), EpochId("p1")), Secret(PUBLIC_SALT))
USER = Domain(Owner(AccountId("tn_1"), EpochId("e1")), Secret(USER_SALT))

BLOCK_0 = (1, 2, 3, 4)
BLOCK_1 = (70_000, 0, 2**32 - 1, 5)
TOKENS = (*BLOCK_0, *BLOCK_1, 9)


def H(*fields: bytes) -> bytes:  # noqa: N802  # the design's own name for it
    framed = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    return hashlib.sha256(framed).digest()[:16]


def u32(token_ids: Iterable[int]) -> bytes:
    return b"".join(token_id.to_bytes(4, "little") for token_id in token_ids)


ROOT = H(b"root", b"v1", TENANT_SALT, FINGERPRINT.encode(), b"")
KEY_0 = H(b"block", ROOT, u32(BLOCK_0))
KEY_1 = H(b"block", KEY_0, u32(BLOCK_1))


def test_root_vector() -> None:
    key = root_key(TENANT.salt, MODEL)
    assert key == ROOT
    assert key.hex() == "44f879e1f0e71ddd231b9dc2c5475017"


def test_root_vector_with_an_adapter() -> None:
    key = root_key(TENANT.salt, ModelIdentity(FINGERPRINT, "lora-7"))
    assert key == H(b"root", b"v1", TENANT_SALT, FINGERPRINT.encode(), b"lora-7")
    assert key.hex() == "9ecd5e4329c8f9ea83469e9c6bd8bf80"


def test_block_vectors() -> None:
    chain = block_keys(TOKENS, block_size=4, model=MODEL, tail=TENANT)
    assert chain.block_keys == (KEY_0, KEY_1)
    assert [key.hex() for key in chain.block_keys] == [
        "7d999cb824d80e6bcd46a2a279358e8d",
        "6b229de2795adb7c45871ded72806c79",
    ]
    assert chain.next_parent == KEY_1
    assert chain.regions == ()
    assert chain.tail == TENANT.owner


def test_boundary_vector() -> None:
    key = boundary_key(BlockKey(KEY_0), USER.salt)
    assert key == H(b"boundary", KEY_0, USER_SALT)
    assert key.hex() == "215561a321398841b3f742628c567aba"


def test_straddling_block_vector() -> None:
    """The public prefix ends inside block 1: block 0 is public, block 1 the tenant's."""
    chain = block_keys(TOKENS, block_size=4, model=MODEL, tail=TENANT, spans=[Span(6, PUBLIC)])
    public_0 = H(b"block", H(b"root", b"v1", PUBLIC_SALT, FINGERPRINT.encode(), b""), u32(BLOCK_0))
    straddling = H(b"block", H(b"boundary", public_0, TENANT_SALT), u32(BLOCK_1))
    assert chain.block_keys == (public_0, straddling)
    assert [key.hex() for key in chain.block_keys] == [
        "883c29bef0ab77b386967def8cd6c1f4",
        "de066084fab4365dbbf9627cf9c0c3c4",
    ]
    assert chain.regions == (Region(1, AccountId("pb_1"), EpochId("p1")),)
    assert chain.tail == TENANT.owner


def test_end_user_vector() -> None:
    """An end user is a namespace inside the tenant: both salts are in the chain."""
    chain = block_keys(BLOCK_0, block_size=4, model=MODEL, tail=USER, spans=[Span(0, TENANT)])
    boundary = H(b"boundary", ROOT, USER_SALT)
    key = H(b"block", boundary, u32(BLOCK_0))
    assert chain.block_keys == (key,)
    assert boundary.hex() == "c697865864ddb973d17d9497f1888f8d"
    assert key.hex() == "88fc72f494ad203fd8bc2a6418d0ceb8"
    assert chain.regions == ()


def test_a_span_that_ends_with_the_last_full_block_leaves_the_boundary_to_the_next_parent() -> None:
    chain = block_keys(TOKENS, block_size=4, model=MODEL, tail=TENANT, spans=[Span(9, PUBLIC)])
    assert chain.next_parent == H(b"boundary", chain.block_keys[-1], TENANT_SALT)


def test_extending_the_chain_during_decode_gives_the_prompts_own_keys() -> None:
    whole = block_keys(TOKENS[:8], block_size=4, model=MODEL, tail=TENANT)
    prompt = block_keys(TOKENS[:6], block_size=4, model=MODEL, tail=TENANT)
    assert extend(prompt.next_parent, BLOCK_1) == whole.block_keys[1]


def test_decode_extends_over_a_boundary_without_a_salt() -> None:
    spans = [Span(4, PUBLIC)]
    whole = block_keys(TOKENS[:8], block_size=4, model=MODEL, tail=TENANT, spans=spans)
    prompt = block_keys(TOKENS[:6], block_size=4, model=MODEL, tail=TENANT, spans=spans)
    assert extend(prompt.next_parent, BLOCK_1) == whole.block_keys[1]


def test_another_epoch_makes_every_hit_a_miss() -> None:
    rotated = Domain(Owner(AccountId("tn_1"), EpochId("e2")), Secret(bytes(32)))
    old = block_keys(TOKENS, block_size=4, model=MODEL, tail=TENANT)
    new = block_keys(TOKENS, block_size=4, model=MODEL, tail=rotated)
    assert not {*old.block_keys, old.next_parent} & {*new.block_keys, new.next_parent}


def test_another_public_epoch_changes_the_tenants_blocks_behind_it_too() -> None:
    rotated = Domain(PUBLIC.owner, Secret(bytes(32)))
    old, new = (
        block_keys(TOKENS, block_size=4, model=MODEL, tail=TENANT, spans=[Span(4, domain)])
        for domain in (PUBLIC, rotated)
    )
    assert not set(old.block_keys) & set(new.block_keys)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ModelIdentity("org_1", "2345"), ModelIdentity("org_12345", "")),
        (ModelIdentity("org_1", "2345"), ModelIdentity("", "org_12345")),
        (ModelIdentity("a\0b", "c"), ModelIdentity("a", "b\0c")),
    ],
)
def test_neighbouring_fields_never_run_into_each_other(
    left: ModelIdentity, right: ModelIdentity
) -> None:
    assert root_key(TENANT.salt, left) != root_key(TENANT.salt, right)


def test_salt_and_fingerprint_never_run_into_each_other() -> None:
    left = root_key(Secret(b"org_1"), ModelIdentity("2345"))
    right = root_key(Secret(b"org_12345"), ModelIdentity(""))
    assert left != right


def test_a_boundary_is_no_block() -> None:
    """Whoever chooses tokens cannot choose the bytes of a salt: the tags keep them apart."""
    salt = Secret(u32(BLOCK_0))
    parent = root_key(TENANT.salt, MODEL)
    assert boundary_key(parent, salt) != extend(parent, BLOCK_0)


def test_an_empty_span_between_two_domains_only_mixes_its_salt_in() -> None:
    spans = [Span(4, PUBLIC), Span(4, TENANT)]
    chain = block_keys(TOKENS, block_size=4, model=MODEL, tail=USER, spans=spans)
    parent = H(b"boundary", H(b"boundary", chain.block_keys[0], TENANT_SALT), USER_SALT)
    assert chain.block_keys[1] == H(b"block", parent, u32(BLOCK_1))
    assert chain.regions == (Region(1, AccountId("pb_1"), EpochId("p1")),)


def test_a_domain_that_comes_back_as_the_tail_keeps_its_own_region() -> None:
    spans = [Span(4, TENANT), Span(8, PUBLIC)]
    chain = block_keys(TOKENS, block_size=4, model=MODEL, tail=TENANT, spans=spans)
    assert [(region.end_block, region.account_id) for region in chain.regions] == [
        (1, "tn_1"),
        (2, "pb_1"),
    ]


@pytest.mark.parametrize("ends", [(-1,), (10,), (6, 5)])
def test_spans_out_of_order_or_bounds_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="spans must be ordered"):
        block_keys(
            TOKENS,
            block_size=4,
            model=MODEL,
            tail=TENANT,
            spans=[Span(end, PUBLIC) for end in ends],
        )


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_a_token_id_beyond_32_bits_is_refused(token_id: int) -> None:
    with pytest.raises(OverflowError):
        token_bytes([token_id])


def test_no_salt_shows_in_a_domains_repr() -> None:
    assert "redacted" in repr(TENANT)
    assert TENANT_SALT.hex() not in repr(TENANT)
    assert repr(TENANT_SALT) not in repr(TENANT)
