from __future__ import annotations

from dataclasses import replace

import pytest

from freehold.errors import InvalidRequest
from freehold.kv.keys import Domain, ModelIdentity, Span, block_keys
from freehold.protocol import AccountId, EpochId, Owner
from freehold.secret import Secret
from tenancy.derivation import derive
from tenancy.directory import SealedEpoch
from tenancy.keyring import (
    UnknownAccount,
    epoch_place,
    validate_cache_salt,
)
from tenancy.sealing import UnsealFailed
from tests.support.tenants import MemoryControlPlane

MODEL = ModelIdentity("fingerprint")
TOKENS = tuple(range(64))


@pytest.fixture
def plane() -> MemoryControlPlane:
    return MemoryControlPlane()


def keys_of(tail: Domain, *spans: Span) -> set[bytes]:
    chain = block_keys(TOKENS, block_size=16, model=MODEL, tail=tail, spans=spans)
    return {*chain.block_keys, chain.next_parent}


def test_a_tenants_salt_is_derived_from_its_epochs_secret(plane: MemoryControlPlane) -> None:
    account_id, epoch_id = AccountId("tn_1"), EpochId("e" * 32)
    secret = Secret(b"s" * 32)
    sealed = plane.master_key.seal(secret, epoch_place(account_id, epoch_id))
    epochs = {account_id: SealedEpoch(epoch_id, sealed)}
    plane.replace_snapshot(replace(plane.snapshot(), epochs=epochs))

    domain = plane.keyring().tenant_domain(account_id)
    assert domain.owner == Owner(account_id, epoch_id)
    assert domain.salt == derive(secret, b"cache-salt/v1")
    user = plane.keyring().end_user_domain(account_id, "u1")
    assert user.owner == domain.owner
    assert user.salt == derive(secret, b"\x0b\0\0\0end-user/v1\x02\0\0\0u1")


def test_the_same_account_has_the_same_salt_on_every_gateway(plane: MemoryControlPlane) -> None:
    account = plane.create_tenant("acme").account_id
    assert plane.keyring().tenant_domain(account) == plane.keyring().tenant_domain(account)
    assert plane.keyring().end_user_domain(account, "u") == plane.keyring().end_user_domain(
        account, "u"
    )


def test_no_two_domains_share_a_block(plane: MemoryControlPlane) -> None:
    keyring = plane.keyring()
    accounts = [plane.create_tenant(name).account_id for name in ("a", "b")]
    tails = [keyring.tenant_domain(account) for account in accounts]
    chains = [keys_of(tail) for tail in tails]
    for account, tail in zip(accounts, tails, strict=True):
        for cache_salt in ("u1", "u2", "u12"):
            user = keyring.end_user_domain(account, cache_salt)
            chains.append(keys_of(user, Span(0, tail)))
    assert len(set[bytes]().union(*chains)) == sum(len(chain) for chain in chains)


def test_an_end_user_stays_inside_the_tenant(plane: MemoryControlPlane) -> None:
    """The same ``cache_salt`` under another tenant is another salt, whatever a client sends."""
    keyring = plane.keyring()
    a, b = (plane.create_tenant(name).account_id for name in ("a", "b"))
    assert keyring.end_user_domain(a, "u").salt != keyring.end_user_domain(b, "u").salt
    salt_of_a = keyring.tenant_domain(a).salt
    assert keyring.end_user_domain(b, salt_of_a.reveal().hex()).salt != salt_of_a


def test_a_new_epoch_changes_every_salt_and_the_owner(plane: MemoryControlPlane) -> None:
    account = plane.create_tenant("acme").account_id
    keyring = plane.keyring()
    before = [keyring.tenant_domain(account), keyring.end_user_domain(account, "u")]
    plane.new_epoch(account)
    after = [keyring.tenant_domain(account), keyring.end_user_domain(account, "u")]
    for old, new in zip(before, after, strict=True):
        assert old.salt != new.salt
        assert old.owner.epoch_id != new.owner.epoch_id
        assert old.owner.account_id == new.owner.account_id
        assert keys_of(old).isdisjoint(keys_of(new))


def test_another_tenants_new_epoch_changes_nothing(plane: MemoryControlPlane) -> None:
    a, b = (plane.create_tenant(name).account_id for name in ("a", "b"))
    keyring = plane.keyring()
    before = keyring.tenant_domain(a)
    plane.new_epoch(b)
    assert keyring.tenant_domain(a) == before


def test_an_account_that_is_gone_is_an_error(plane: MemoryControlPlane) -> None:
    account = plane.create_tenant("acme").account_id
    keyring = plane.keyring()
    keyring.tenant_domain(account)
    plane.replace_snapshot(replace(plane.snapshot(), epochs={}))
    with pytest.raises(UnknownAccount):
        keyring.tenant_domain(account)


def test_an_epoch_copied_from_another_account_is_refused(plane: MemoryControlPlane) -> None:
    a, b = (plane.create_tenant(name).account_id for name in ("a", "b"))
    epochs = {**plane.snapshot().epochs, b: plane.snapshot().epochs[a]}
    plane.replace_snapshot(replace(plane.snapshot(), epochs=epochs))
    with pytest.raises(UnsealFailed):
        plane.keyring().tenant_domain(b)


@pytest.mark.parametrize("value", ["u", "user-1", "é" * 128, "a b", "😀", "org:1|2"])
def test_accepts_cache_salts(value: str) -> None:
    assert validate_cache_salt(value) == value


@pytest.mark.parametrize(
    "value", ["", "a" * 129, "a@b", "a/b", "a\\b", "a\0b", "@", "\ud800", "ok\udfff"]
)
def test_refuses_bad_cache_salts_without_repeating_them(
    plane: MemoryControlPlane, value: str
) -> None:
    account = plane.create_tenant("acme").account_id
    with pytest.raises(InvalidRequest) as caught:
        validate_cache_salt(value)
    assert caught.value.param == "cache_salt"
    assert len(value) < 2 or value not in str(caught.value)
    with pytest.raises(InvalidRequest):
        plane.keyring().end_user_domain(account, value)


def test_nothing_of_it_shows_a_salt(plane: MemoryControlPlane) -> None:
    account = plane.create_tenant("acme").account_id
    keyring = plane.keyring()
    domain = keyring.tenant_domain(account)
    shown = f"{keyring!r} {domain!r} {keyring.end_user_domain(account, 'u')!r} {plane.snapshot()!r}"
    salt = domain.salt.reveal()
    assert salt.hex() not in shown
    assert repr(salt)[2:-1] not in shown
