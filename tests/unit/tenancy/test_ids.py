import pytest

from freehold.errors import InvalidRequest
from tenancy.ids import new_account_id, new_epoch_id, parse_tenant_id


@pytest.mark.parametrize("text", ["a", "acme", "acme-2", "0", "a" * 63])
def test_accepts_slugs(text: str) -> None:
    assert parse_tenant_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "-a", "Acme", "a_b", "a b", "a/b", "a\n", "a" * 64, "ä", "a\0", "fh_0123456789ab_secret"],
)
def test_refuses_everything_else_without_repeating_it(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_tenant_id(text)
    assert caught.value.param == "tenant"
    assert not text or text not in str(caught.value)


def test_account_and_epoch_ids_are_random_and_opaque() -> None:
    accounts = {new_account_id() for _ in range(100)}
    assert len(accounts) == 100
    assert all(account.startswith("tn_") and len(account) == 35 for account in accounts)
    assert len({new_epoch_id() for _ in range(100)}) == 100
    assert len(bytes.fromhex(new_epoch_id())) * 8 == 128
