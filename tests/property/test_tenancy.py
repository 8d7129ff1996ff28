"""Invariants of the identity chain: nothing that differs is ever made alike."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.errors import InvalidRequest
from freehold.kv.keys import Domain, ModelIdentity, Span, block_keys
from freehold.secret import Secret
from tenancy.api_key import ApiKey, parse_api_key
from tenancy.framing import frame
from tenancy.ids import KeyId
from tenancy.keyring import MAX_CACHE_SALT_CHARS, validate_cache_salt
from tenancy.sealing import MasterKey, SealedFor
from tests.support.tenants import MemoryControlPlane

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FIELDS = st.lists(st.binary(max_size=6), max_size=4)
CACHE_SALTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="@/\\\0"),
    min_size=1,
    max_size=MAX_CACHE_SALT_CHARS,
)


def to_key(key_id: str, secret: str) -> ApiKey:
    return ApiKey(KeyId(key_id), Secret(secret.encode()))


API_KEYS = st.builds(
    to_key,
    st.text(ALPHABET, min_size=12, max_size=12),
    st.text(ALPHABET, min_size=43, max_size=43),
)


@given(FIELDS, FIELDS)
def test_different_fields_never_frame_alike(a: list[bytes], b: list[bytes]) -> None:
    assert (frame(*a) == frame(*b)) == (a == b)


@given(API_KEYS)
def test_every_key_comes_back_from_its_text(key: ApiKey) -> None:
    assert parse_api_key(key.reveal()) == key


@given(API_KEYS, st.integers(3, 64), st.text(ALPHABET, min_size=1, max_size=4))
def test_no_error_within_four_neighbours_passes(key: ApiKey, at: int, wrong: str) -> None:
    text = key.reveal()
    damaged = text[:at] + wrong + text[at + len(wrong) :]
    if damaged != text:
        assert parse_api_key(damaged) is None


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused_never_an_error(text: str) -> None:
    assert parse_api_key(text) is None


@given(st.text(max_size=MAX_CACHE_SALT_CHARS + 5))
def test_a_cache_salt_is_accepted_or_refused_by_name(text: str) -> None:
    try:
        accepted = bool(validate_cache_salt(text).encode())
    except InvalidRequest as error:
        accepted = error.param != "cache_salt"
    is_plain = all(char not in "@/\\\0" and not "\ud800" <= char <= "\udfff" for char in text)
    assert accepted == (0 < len(text) <= MAX_CACHE_SALT_CHARS and is_plain)


PLANE = MemoryControlPlane()
KEYRING = PLANE.keyring()
ACCOUNTS = [PLANE.create_tenant(name).account_id for name in ("org-1", "org-12")]


@settings(max_examples=50)
@given(st.lists(CACHE_SALTS, unique=True, max_size=5), st.integers(1, 3))
def test_different_domains_never_share_a_block(cache_salts: list[str], num_blocks: int) -> None:
    """Tenants and their end users, over the same tokens of the same model."""
    chains: list[tuple[bytes, ...]] = []

    def add(tail: Domain, *spans: Span) -> None:
        chain = block_keys(
            range(16 * num_blocks),
            block_size=16,
            model=ModelIdentity("fingerprint"),
            tail=tail,
            spans=spans,
        )
        chains.append(chain.block_keys)

    for account_id in ACCOUNTS:
        tenant = KEYRING.tenant_domain(account_id)
        add(tenant)
        for cache_salt in cache_salts:
            user = KEYRING.end_user_domain(account_id, cache_salt)
            assert user.owner == tenant.owner
            add(user, Span(0, tenant))
    keys = [key for chain in chains for key in chain]
    assert len(set(keys)) == len(keys) == len(ACCOUNTS) * (1 + len(cache_salts)) * num_blocks


@given(
    st.binary(min_size=32, max_size=32),
    st.binary(max_size=64),
    st.lists(st.text(), min_size=3, max_size=3),
)
def test_what_is_sealed_opens(key: bytes, secret: bytes, place: list[str]) -> None:
    master_key = MasterKey(Secret(key))
    where = SealedFor(*(part.encode(errors="ignore").decode() for part in place))
    assert master_key.unseal(master_key.seal(Secret(secret), where), where) == Secret(secret)
