import pytest

from freehold.errors import InvalidRequest
from freehold.secret import Secret
from tenancy.api_key import ApiKey, digest, new_api_key, parse_api_key, parse_key_id
from tenancy.ids import KeyId

PEPPER = Secret(b"p" * 32)
FIXED = ApiKey(KeyId("0123456789ab"), Secret(b"s" * 43))


def test_a_new_key_comes_back_from_its_text() -> None:
    key = new_api_key()
    assert parse_api_key(key.reveal()) == key


def test_the_text_is_the_documented_form() -> None:
    assert FIXED.reveal() == "fh_0123456789ab_" + "s" * 43 + "0lg3Fi"


def test_keys_are_never_alike() -> None:
    keys = [new_api_key() for _ in range(100)]
    assert len({key.key_id for key in keys}) == 100
    assert len({key.secret.reveal() for key in keys}) == 100


def test_every_single_character_typo_is_refused_offline() -> None:
    text = FIXED.reveal()
    for i, char in enumerate(text):
        typo = text[:i] + ("x" if char != "x" else "y") + text[i + 1 :]
        assert parse_api_key(typo) is None, i


def test_swapped_neighbours_are_refused_offline() -> None:
    text = new_api_key().reveal()
    swapped = {text[:i] + text[i + 1] + text[i] + text[i + 2 :] for i in range(len(text) - 1)}
    assert [other for other in swapped - {text} if parse_api_key(other) is not None] == []


def test_every_cut_is_refused_offline() -> None:
    text = FIXED.reveal()
    assert [n for n in range(len(text)) if parse_api_key(text[:n]) or parse_api_key(text[-n:])] == [
        0  # text[-0:] is the whole key
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sk-1234",
        " " + FIXED.reveal(),
        FIXED.reveal() + "\n",
        "Bearer " + FIXED.reveal(),
        FIXED.reveal().replace("s", "\u017f"),
        "fh_" * 1_000_000,
        "\ud800" * 65,
    ],
)
def test_other_text_is_no_key(text: str) -> None:
    assert parse_api_key(text) is None


def test_a_key_id_may_be_given_as_id_or_whole_key() -> None:
    assert parse_key_id("0123456789ab") == "0123456789ab"
    assert parse_key_id(FIXED.reveal()) == "0123456789ab"


def test_a_damaged_key_does_not_appear_in_the_error() -> None:
    damaged = FIXED.reveal()[:-1]
    with pytest.raises(InvalidRequest) as caught:
        parse_key_id(damaged)
    assert "s" * 43 not in str(caught.value) + repr(caught.value)
    assert "0123456789ab" not in str(caught.value)


def test_the_digest_depends_on_pepper_id_and_secret() -> None:
    digests = {
        digest(FIXED, PEPPER),
        digest(FIXED, Secret(b"q" * 32)),
        digest(ApiKey(KeyId("0123456789ac"), FIXED.secret), PEPPER),
        digest(ApiKey(FIXED.key_id, Secret(b"t" * 43)), PEPPER),
    }
    assert len(digests) == 4
    assert all(len(value) == 32 for value in digests)


def test_a_key_is_redacted_in_every_text_form() -> None:
    key = new_api_key()
    secret = key.secret.reveal().decode()
    assert secret not in f"{key} {key!r} {key.secret} {[key]}"
