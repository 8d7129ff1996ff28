import secrets
from dataclasses import replace

import pytest

from freehold.secret import Secret
from tenancy.ids import MasterKeyId
from tenancy.sealing import MasterKey, SealedFor, SealedSecret, UnsealFailed

PLACE = SealedFor(kind="epoch", owner_id="tn_1", item_id="e1")
SECRET = Secret(b"a secret of thirty-two bytes ...")


@pytest.fixture
def master_key() -> MasterKey:
    return MasterKey(Secret(secrets.token_bytes(32)))


def test_opens_where_it_was_sealed(master_key: MasterKey) -> None:
    assert master_key.unseal(master_key.seal(SECRET, PLACE), PLACE) == SECRET


def test_two_seals_of_one_secret_differ(master_key: MasterKey) -> None:
    assert master_key.seal(SECRET, PLACE).box != master_key.seal(SECRET, PLACE).box


@pytest.mark.parametrize(
    "elsewhere",
    [
        replace(PLACE, kind="pepper"),
        replace(PLACE, owner_id="tn_2"),
        replace(PLACE, item_id="e2"),
        SealedFor(kind="epoch", owner_id="tn_1e", item_id="1"),
    ],
)
def test_refuses_to_open_in_another_place(master_key: MasterKey, elsewhere: SealedFor) -> None:
    sealed = master_key.seal(SECRET, PLACE)
    with pytest.raises(UnsealFailed, match="changed or moved"):
        master_key.unseal(sealed, elsewhere)


def test_refuses_every_changed_byte_and_every_cut(master_key: MasterKey) -> None:
    sealed = master_key.seal(SECRET, PLACE)
    box = sealed.box
    changed = [box[:i] + bytes([box[i] ^ 1]) + box[i + 1 :] for i in range(len(box))]
    for damaged in [*changed, *(box[:n] for n in range(len(box)))]:
        with pytest.raises(UnsealFailed):
            master_key.unseal(SealedSecret(sealed.master_key_id, damaged), PLACE)


def test_another_master_key_is_named_by_its_public_id(master_key: MasterKey) -> None:
    other = MasterKey(Secret(secrets.token_bytes(32)))
    sealed = other.seal(SECRET, PLACE)
    with pytest.raises(UnsealFailed) as caught:
        master_key.unseal(sealed, PLACE)
    assert other.master_key_id in str(caught.value)
    assert master_key.master_key_id in str(caught.value)


def test_a_forged_master_key_id_does_not_help(master_key: MasterKey) -> None:
    other = MasterKey(Secret(secrets.token_bytes(32)))
    forged = SealedSecret(MasterKeyId(master_key.master_key_id), other.seal(SECRET, PLACE).box)
    with pytest.raises(UnsealFailed):
        master_key.unseal(forged, PLACE)


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_master_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        MasterKey(Secret(bytes(length)))


def test_its_id_is_stable_and_tells_nothing_of_the_key() -> None:
    key = bytes(range(32))
    assert MasterKey(Secret(key)).master_key_id == MasterKey(Secret(key)).master_key_id
    assert MasterKey(Secret(key)).master_key_id not in key.hex()
