from __future__ import annotations

import pytest

from freehold.kv.accounts import MAX_EPOCHS, Account, Accounts, Shortfall
from freehold.protocol import AccountId, AccountPolicy, BlockKey, EpochId


def hold(
    accounts: Accounts,
    name: str,
    *,
    active: int = 0,
    cached: int = 0,
    floor: int = 0,
    ceiling: int | None = None,
    weight: float = 1.0,
) -> Account:
    account_id = AccountId(name)
    accounts.adopt(account_id, AccountPolicy(1, floor, ceiling, weight))
    account = accounts[account_id]
    account.shift(active=active, cached=cached)
    for i in range(cached):
        account.order.add(i, BlockKey(bytes([i])), None, i)
    return account


def test_the_newest_policy_wins_and_an_older_one_is_ignored() -> None:
    accounts = Accounts()
    assert accounts.adopt(AccountId("a"), AccountPolicy(version=0, floor_blocks=1))
    assert accounts.adopt(AccountId("a"), AccountPolicy(version=2, floor_blocks=2))
    assert not accounts.adopt(AccountId("a"), AccountPolicy(version=2, floor_blocks=3))
    assert not accounts.adopt(AccountId("a"), AccountPolicy(version=1, floor_blocks=4))
    assert accounts[AccountId("a")].floor == 2


def test_the_account_most_over_its_floor_gives_way() -> None:
    accounts = Accounts()
    hold(accounts, "big", cached=10, floor=8)
    small = hold(accounts, "small", cached=5, floor=0)
    assert accounts.most_over_floor() is small


def test_weight_divides_the_excess() -> None:
    accounts = Accounts()
    hold(accounts, "heavy", cached=8, weight=4.0)
    light = hold(accounts, "light", cached=3)
    assert accounts.most_over_floor() is light


def test_an_account_without_weight_gives_way_first() -> None:
    accounts = Accounts()
    hold(accounts, "normal", cached=8)
    none = hold(accounts, "none", cached=1, weight=0.0)
    assert accounts.most_over_floor() is none


def test_ties_go_to_the_account_that_came_first() -> None:
    accounts = Accounts()
    first = hold(accounts, "z", cached=3)
    hold(accounts, "a", cached=3)
    assert accounts.most_over_floor() is first


def test_nobody_gives_way_at_its_floor_or_without_cached_blocks() -> None:
    accounts = Accounts()
    hold(accounts, "at floor", cached=4, floor=4)
    hold(accounts, "running", active=9)
    assert accounts.most_over_floor() is None


def test_running_blocks_fill_the_floor_first() -> None:
    """Six held over a floor of four: only two of the cached ones can go."""
    accounts = Accounts()
    account = hold(accounts, "a", active=3, cached=3, floor=4)
    assert account.num_spare == 2


def test_a_claim_within_what_others_spare_has_no_shortfall() -> None:
    accounts = Accounts()
    hold(accounts, "other", cached=6, floor=2)
    tail = hold(accounts, "tail")
    accounts.claim({tail: 5}, tail)
    assert accounts.shortfall({tail: 5}, num_free=1) is None


def test_a_claim_beyond_it_says_how_many_blocks_are_missing() -> None:
    accounts = Accounts()
    hold(accounts, "other", cached=6, floor=2)
    tail = hold(accounts, "tail")
    accounts.claim({tail: 7}, tail)
    assert accounts.shortfall({tail: 7}, num_free=1) == Shortfall(2, ())


def test_an_account_below_its_floor_may_name_those_that_run_over_theirs() -> None:
    accounts = Accounts()
    hold(accounts, "within", active=2, floor=4)
    hold(accounts, "over", active=6, floor=3)
    hold(accounts, "most over", active=9, floor=3)
    tail = hold(accounts, "tail", active=1, floor=4)
    accounts.claim({tail: 3}, tail)
    assert accounts.shortfall({tail: 3}, num_free=0) == Shortfall(
        3, (AccountId("most over"), AccountId("over"))
    )


def test_beyond_its_floor_an_account_has_no_claim_on_others() -> None:
    accounts = Accounts()
    hold(accounts, "over", active=9, floor=3)
    tail = hold(accounts, "tail", active=1, floor=4)
    accounts.claim({tail: 4}, tail)
    assert accounts.shortfall({tail: 4}, num_free=0) == Shortfall(4, ())


def test_preempting_an_account_within_its_floor_would_free_nothing_so_it_is_no_victim() -> None:
    """Its running blocks would become cached ones that the floor protects."""
    accounts = Accounts()
    hold(accounts, "cached over", active=3, cached=4, floor=6)
    tail = hold(accounts, "tail", floor=4)
    accounts.claim({tail: 3}, tail)
    assert accounts.shortfall({tail: 3}, num_free=0) == Shortfall(2, ())


def test_at_its_ceiling_an_account_is_its_own_victim() -> None:
    accounts = Accounts()
    tail = hold(accounts, "tail", active=4, cached=1, ceiling=5)
    accounts.claim({tail: 3}, tail)
    assert accounts.shortfall({tail: 3}, num_free=50) == Shortfall(2, (AccountId("tail"),))


def test_own_cached_blocks_make_room_under_the_ceiling() -> None:
    accounts = Accounts()
    tail = hold(accounts, "tail", active=2, cached=3, ceiling=5)
    accounts.claim({tail: 3}, tail)
    assert accounts.shortfall({tail: 3}, num_free=0) is None


def test_an_account_below_its_floor_may_replace_its_own_cached_blocks() -> None:
    accounts = Accounts()
    tail = hold(accounts, "tail", cached=3, floor=9)
    accounts.claim({tail: 3}, tail)
    assert accounts.shortfall({tail: 3}, num_free=0) is None
    assert accounts.most_over_floor() is tail


def test_a_region_below_its_floor_may_replace_its_own_cached_blocks() -> None:
    accounts = Accounts()
    public = hold(accounts, "public", cached=3, floor=9)
    tail = hold(accounts, "tail")
    needs = {tail: 0, public: 3}
    accounts.claim(needs, tail)
    assert public.num_spare == 3
    assert accounts.shortfall(needs, num_free=0) is None


def test_a_region_may_take_cached_blocks_of_the_tail_whose_request_needs_it() -> None:
    accounts = Accounts()
    tail = hold(accounts, "tail", cached=5, floor=9)
    public = hold(accounts, "public")
    needs = {tail: 0, public: 2}
    accounts.claim(needs, tail)
    assert tail.num_spare == 2
    assert accounts.shortfall(needs, num_free=0) is None


def test_the_tail_takes_no_region_below_its_floor() -> None:
    accounts = Accounts()
    public = hold(accounts, "public", cached=5, floor=5)
    tail = hold(accounts, "tail", floor=3)
    needs = {tail: 3, public: 1}
    accounts.claim(needs, tail)
    assert public.num_spare == 1
    assert accounts.shortfall(needs, num_free=0) is not None


def test_settling_ends_the_claim() -> None:
    accounts = Accounts()
    tail = hold(accounts, "tail", cached=3, floor=9)
    accounts.claim({tail: 3}, tail)
    accounts.settle({tail: 3})
    assert tail.num_held == 3
    assert tail.num_spare == 0
    assert accounts.most_over_floor() is None


@pytest.mark.parametrize(("num_blocks", "expected"), [(4, True), (5, False)])
def test_what_fits_leaves_every_other_floor_alone(num_blocks: int, expected: bool) -> None:
    accounts = Accounts()
    hold(accounts, "other", floor=6)
    tail = hold(accounts, "tail", floor=3)
    assert accounts.fits({tail: num_blocks}, tail, num_blocks=10) is expected


@pytest.mark.parametrize(("num_public", "expected"), [(2, True), (4, True), (5, False)])
def test_a_regions_blocks_count_within_its_floor(num_public: int, expected: bool) -> None:
    accounts = Accounts()
    public = hold(accounts, "public", floor=4)
    tail = hold(accounts, "tail")
    assert accounts.fits({tail: 6, public: num_public}, tail, num_blocks=10) is expected


def test_what_exceeds_a_ceiling_never_fits() -> None:
    accounts = Accounts()
    tail = hold(accounts, "tail", ceiling=3)
    assert not accounts.fits({tail: 4}, tail, num_blocks=100)


def test_a_purge_retires_every_epoch_seen_but_the_one_to_keep() -> None:
    account = Accounts()[AccountId("a")]
    account.see(EpochId("e1"))
    account.see(EpochId("e2"))
    account.retire(EpochId("e2"))
    account.see(EpochId("e1"))
    assert account.is_purged(EpochId("e1"))
    assert not account.is_purged(EpochId("e2"))
    assert not account.is_purged(EpochId("e3"))


def test_the_memory_of_epochs_is_bounded() -> None:
    account = Accounts()[AccountId("a")]
    for i in range(3 * MAX_EPOCHS):
        account.see(EpochId(f"e{i}"))
        account.retire(None)
    assert len(account.epochs) == MAX_EPOCHS
    assert account.is_purged(EpochId(f"e{3 * MAX_EPOCHS - 1}"))
