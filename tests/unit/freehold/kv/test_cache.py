from __future__ import annotations

import pytest

from freehold.kv.cache import KVCache, Shortfall
from freehold.kv.events import BlockRemoved, BlockStored
from freehold.kv.keys import Span
from freehold.protocol import AccountId, AccountPolicy, AccountUsage, CacheMode, EpochId
from tests.support.kv import BLOCK_SIZE, fill, make_domain, make_request, prefill

A = make_domain("tn_a")
B = make_domain("tn_b")
A_ID, B_ID = AccountId("tn_a"), AccountId("tn_b")
PROMPT = list(range(10))
"""Two full blocks and a half."""


@pytest.fixture
def cache() -> KVCache:
    return KVCache(8, BLOCK_SIZE)


def counts(cache: KVCache) -> tuple[int, int, int]:
    assert cache.check()
    return cache.num_free, cache.num_active, cache.num_cached


def cached_tokens(cache: KVCache, token_ids: list[int], domain: object = A) -> int:
    """What a request with this prompt finds; leaves no trace but the order of use."""
    assert isinstance(domain, type(A))
    table = cache.open(make_request(token_ids, domain))
    num_cached = cache.attach(table, len(token_ids) - 1)
    cache.free(table)
    return num_cached


def blocks(count: int, seed: int) -> list[int]:
    """The tokens of so many full blocks, shared with no other seed."""
    return [1_000 * seed + i for i in range(count * BLOCK_SIZE)]


# Finding


def test_the_same_prompt_hits_for_its_tenant_and_misses_for_another(cache: KVCache) -> None:
    fill(cache, make_request(PROMPT, A))
    assert cached_tokens(cache, PROMPT, A) == 8
    assert cached_tokens(cache, PROMPT, B) == 0


def test_another_epoch_and_another_end_user_miss(cache: KVCache) -> None:
    fill(cache, make_request(PROMPT, A))
    assert cached_tokens(cache, PROMPT, make_domain("tn_a", "e2")) == 0
    end_user = cache.open(
        make_request(PROMPT, make_domain("tn_a", end_user="u"), spans=[Span(0, A)])
    )
    assert cache.attach(end_user, 9) == 0
    assert cached_tokens(cache, PROMPT, A) == 8


def test_an_end_user_finds_its_own_blocks_and_the_tenant_pays(cache: KVCache) -> None:
    request = make_request(PROMPT, make_domain("tn_a", end_user="u"), spans=[Span(0, A)])
    fill(cache, request)
    assert cache.attach(cache.open(request), 9) == 8
    assert cache.usage_by_account == {A_ID: AccountUsage(2, 0)}


def test_nothing_is_findable_before_it_is_published(cache: KVCache) -> None:
    request = make_request(PROMPT, A)
    table = cache.open(request)
    assert cache.allocate(table, len(PROMPT))
    assert cached_tokens(cache, PROMPT) == 0
    cache.publish(table, PROMPT, 7)
    assert cached_tokens(cache, PROMPT) == 4
    cache.publish(table, PROMPT, 8)
    assert cached_tokens(cache, PROMPT) == 8


def test_blocks_that_were_never_published_are_free_after_an_abort(cache: KVCache) -> None:
    table = cache.open(make_request(PROMPT, A))
    assert cache.allocate(table, len(PROMPT))
    cache.publish(table, PROMPT, 5)
    cache.free(table)
    assert counts(cache) == (7, 0, 1)


@pytest.mark.parametrize(("max_tokens", "expected"), [(0, 0), (3, 0), (7, 4), (8, 8), (99, 8)])
def test_attach_stays_within_its_limit(cache: KVCache, max_tokens: int, expected: int) -> None:
    fill(cache, make_request(PROMPT, A))
    assert cache.attach(cache.open(make_request(PROMPT, A)), max_tokens) == expected


def test_a_table_with_blocks_cannot_be_attached(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    with pytest.raises(ValueError, match="empty table"):
        cache.attach(table, 9)


def test_attached_blocks_are_active_and_shared(cache: KVCache) -> None:
    first = prefill(cache, make_request(PROMPT, A))
    second = cache.open(make_request(PROMPT, A))
    cache.attach(second, 9)
    assert second.block_ids == first.block_ids[:2]
    assert counts(cache) == (5, 3, 0)
    cache.free(first)
    assert counts(cache) == (6, 2, 0)


def test_a_key_under_the_wrong_account_is_a_miss(cache: KVCache) -> None:
    """No block is ever under two owners, even if a gateway mislabels one."""
    fill(cache, make_request(PROMPT, A))
    impostor = make_domain("tn_b")
    mislabelled = make_request(PROMPT, type(A)(impostor.owner, A.salt))
    assert cache.attach(cache.open(mislabelled), 9) == 0


def test_two_that_compute_the_same_block_keep_one_findable_copy(cache: KVCache) -> None:
    first, second = (cache.open(make_request(PROMPT, A)) for _ in range(2))
    for table in (first, second):
        assert cache.allocate(table, 8)
    cache.publish(first, PROMPT, 4)
    cache.publish(second, PROMPT, 8)
    cache.free(second)
    assert counts(cache) == (5, 2, 1)
    cache.free(first)
    assert counts(cache) == (6, 0, 2)
    assert cached_tokens(cache, PROMPT) == 8


def test_publishing_more_than_the_table_covers_is_refused(cache: KVCache) -> None:
    table = cache.open(make_request(PROMPT, A))
    assert cache.allocate(table, 4)
    with pytest.raises(ValueError, match="exceed"):
        cache.publish(table, PROMPT, 5)
    with pytest.raises(ValueError, match="exceed"):
        cache.publish(table, PROMPT[:2], 4)


# Decode


def test_decoded_blocks_are_found_by_the_next_turn(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    answer = [*PROMPT, 90, 91, 92, 93]
    assert cache.allocate(table, len(answer))
    cache.publish(table, answer, 13)
    cache.free(table)
    assert cached_tokens(cache, [*answer, 94]) == 12


def test_a_preempted_sequence_finds_its_decoded_blocks_again(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    tokens = [*PROMPT, 90, 91, 92, 93]
    assert cache.allocate(table, 13)
    cache.publish(table, tokens, 13)
    cache.free(table)
    assert cache.attach(table, len(tokens) - 1) == 12


def test_a_table_that_is_used_again_publishes_again(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    cache.free(table)
    big = cache.open(make_request(blocks(8, seed=1), B))
    assert cache.allocate(big, 32)
    cache.free(big)
    assert cache.allocate(table, 10)
    cache.publish(table, PROMPT, 10)
    assert cached_tokens(cache, PROMPT) == 8


# Cache modes


def test_off_neither_looks_up_nor_inserts(cache: KVCache) -> None:
    fill(cache, make_request(PROMPT, A))
    table = prefill(cache, make_request(PROMPT, A, cache=CacheMode.OFF))
    assert counts(cache) == (3, 3, 2)
    cache.free(table)
    assert counts(cache) == (6, 0, 2)
    fill(cache, make_request(blocks(2, seed=5), A, cache=CacheMode.OFF))
    assert cached_tokens(cache, blocks(2, seed=5)) == 0


def test_no_store_looks_up_but_inserts_nothing(cache: KVCache) -> None:
    fill(cache, make_request(PROMPT, A))
    longer = [*PROMPT, 10, 11, 12]
    table = cache.open(make_request(longer, A, cache=CacheMode.NO_STORE))
    assert cache.attach(table, 12) == 8
    assert cache.allocate(table, 13)
    cache.publish(table, longer, 13)
    cache.free(table)
    assert counts(cache) == (6, 0, 2)
    assert cached_tokens(cache, longer) == 8


def test_a_keyless_block_in_a_region_is_charged_to_the_tail(cache: KVCache) -> None:
    public = make_domain("pb_1")
    request = make_request(PROMPT, A, spans=[Span(8, public)], cache=CacheMode.OFF)
    table = cache.open(request)
    assert cache.allocate(table, 10)
    assert cache.usage_by_account == {A_ID: AccountUsage(3, 0)}


# Regions


def test_tenants_share_a_region_and_keep_their_suffixes_apart(cache: KVCache) -> None:
    public = make_domain("pb_1")
    fill(cache, make_request(PROMPT, A, spans=[Span(4, public)]))
    assert cache.attach(cache.open(make_request(PROMPT, B, spans=[Span(4, public)])), 9) == 4
    assert cache.attach(cache.open(make_request(PROMPT, A, spans=[Span(4, public)])), 9) == 8
    assert cache.usage_by_account == {
        AccountId("pb_1"): AccountUsage(1, 0),
        A_ID: AccountUsage(1, 0),
    }


def test_a_wider_block_may_go_while_narrower_ones_wait_for_it(cache: KVCache) -> None:
    public = make_domain("pb_1")
    request = make_request(PROMPT, A, spans=[Span(4, public)])
    fill(cache, request)
    cache.set_policy(A_ID, AccountPolicy(version=1, floor_blocks=1))
    big = cache.open(make_request(blocks(7, seed=1), B))
    assert cache.allocate(big, 28)
    assert cache.usage_by_account == {B_ID: AccountUsage(7, 0), A_ID: AccountUsage(0, 1)}
    cache.free(big)
    assert cache.attach(cache.open(request), 9) == 0
    table = cache.open(request)
    assert cache.allocate(table, 4)
    cache.publish(table, PROMPT, 4)
    assert cache.attach(cache.open(request), 9) == 8


# Forks


def test_a_fork_shares_full_blocks_and_computes_the_partial_one_again(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    child = cache.fork(table, 10)
    assert child.block_ids == table.block_ids[:2]
    assert cache.allocate(child, 10)
    assert child.block_ids[2] != table.block_ids[2]
    cache.free(table)
    assert counts(cache) == (5, 3, 0)
    cache.free(child)
    assert counts(cache) == (6, 0, 2)


def test_forks_diverge_under_keys_of_their_own(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    child = cache.fork(table, 10)
    for each, token in ((table, 70), (child, 80)):
        tokens = [*PROMPT, token, token]
        assert cache.allocate(each, 12)
        cache.publish(each, tokens, 12)
        cache.free(each)
    assert cached_tokens(cache, [*PROMPT, 70, 70, 0]) == 12
    assert cached_tokens(cache, [*PROMPT, 80, 80, 0]) == 12
    assert cached_tokens(cache, [*PROMPT, 70, 80, 0]) == 8


def test_a_fork_of_decoded_blocks_forgets_the_keys_behind_it(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    assert cache.allocate(table, 16)
    cache.publish(table, [*PROMPT, 70, 70, 70, 70, 70, 70], 16)
    child = cache.fork(table, 12)
    tokens = [*PROMPT, 70, 70, 80, 80, 80, 80]
    assert cache.allocate(child, 16)
    cache.publish(child, tokens, 16)
    assert cached_tokens(cache, [*tokens, 0]) == 16


def test_a_fork_publishes_what_its_parent_had_not(cache: KVCache) -> None:
    table = cache.open(make_request(PROMPT, A))
    assert cache.allocate(table, 10)
    child = cache.fork(table, 10)
    cache.free(table)
    assert cached_tokens(cache, PROMPT) == 0
    cache.publish(child, PROMPT, 8)
    assert cached_tokens(cache, PROMPT) == 8


def test_forking_works_with_the_cache_off_and_leaves_nothing(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A, cache=CacheMode.OFF))
    child = cache.fork(table, 8)
    cache.free(table)
    assert counts(cache) == (6, 2, 0)
    cache.free(child)
    assert counts(cache) == (8, 0, 0)


def test_forking_beyond_the_table_is_refused(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    with pytest.raises(ValueError, match="does not cover"):
        cache.fork(table, 16)


# Giving back


def test_freeing_twice_is_harmless(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    cache.free(table)
    cache.free(table)
    assert counts(cache) == (6, 0, 2)
    assert table.block_ids == []


def test_truncating_gives_back_the_blocks_behind(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    assert cache.allocate(table, 17)
    assert cache.truncate(table, 11) == 11
    assert len(table.block_ids) == 3
    assert counts(cache) == (5, 3, 0)


def test_truncating_to_a_block_boundary_keeps_shared_blocks_for_the_others(cache: KVCache) -> None:
    first = prefill(cache, make_request(PROMPT, A))
    second = cache.open(make_request(PROMPT, A))
    cache.attach(second, 9)
    assert cache.truncate(second, 4) == 4
    assert counts(cache) == (5, 3, 0)
    assert cached_tokens(cache, PROMPT) == 8
    cache.free(first)
    assert cached_tokens(cache, PROMPT) == 8


def test_cutting_into_a_shared_block_gives_it_back_whole(cache: KVCache) -> None:
    first = prefill(cache, make_request(PROMPT, A))
    second = cache.open(make_request(PROMPT, A))
    cache.attach(second, 9)
    assert cache.truncate(second, 6) == 4
    assert len(second.block_ids) == 1
    assert cached_tokens(cache, PROMPT) == 8
    cache.free(first)


def test_cutting_into_an_own_published_block_unpublishes_it(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    assert cache.truncate(table, 6) == 6
    assert cached_tokens(cache, PROMPT) == 4
    cache.publish(table, PROMPT[:8], 8)
    assert cached_tokens(cache, PROMPT) == 8


def test_after_a_rollback_decoded_blocks_get_keys_of_their_new_tokens(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    assert cache.allocate(table, 12)
    cache.publish(table, [*PROMPT, 70, 70], 12)
    assert cache.truncate(table, 11) == 11
    cache.publish(table, [*PROMPT, 70, 71], 12)
    assert cached_tokens(cache, [*PROMPT, 70, 70, 0]) == 8
    assert cached_tokens(cache, [*PROMPT, 70, 71, 0]) == 12


# Pressure


def test_allocation_is_all_or_nothing_and_a_refusal_evicts_nothing(cache: KVCache) -> None:
    fill(cache, make_request(PROMPT, A))
    running = prefill(cache, make_request(blocks(3, seed=1), A))
    table = cache.open(make_request(blocks(6, seed=2), A))
    assert not cache.allocate(table, 24)
    assert table.block_ids == []
    assert counts(cache) == (3, 3, 2)
    assert cached_tokens(cache, PROMPT) == 8
    assert cache.allocate(table, 20)
    cache.free(running)


def test_the_least_recently_used_chain_goes_first_from_its_end(cache: KVCache) -> None:
    old, new = blocks(3, seed=1), blocks(3, seed=2)
    fill(cache, make_request(old, A))
    fill(cache, make_request(new, A))
    assert cached_tokens(cache, [*old, 0]) == 12
    assert cache.allocate(cache.open(make_request(blocks(4, seed=3), A)), 16)
    assert cached_tokens(cache, [*new, 0]) == 4
    assert cached_tokens(cache, [*old, 0]) == 12


def test_the_greedy_neighbour_loses_its_own_cache_not_the_others(cache: KVCache) -> None:
    fill(cache, make_request(blocks(2, seed=1), A))
    for seed in range(2, 9):
        fill(cache, make_request(blocks(4, seed=seed), B))
    assert cached_tokens(cache, [*blocks(2, seed=1), 0], A) == 8


def test_a_floor_holds_against_running_neighbours(cache: KVCache) -> None:
    cache.set_policy(A_ID, AccountPolicy(version=1, floor_blocks=3))
    fill(cache, make_request(blocks(4, seed=1), A))
    table = cache.open(make_request(blocks(8, seed=2), B))
    assert not cache.allocate(table, 24)
    assert cache.allocate(table, 20)
    assert cache.usage_by_account[A_ID] == AccountUsage(0, 3)


def test_over_its_ceiling_an_account_evicts_its_own_first(cache: KVCache) -> None:
    cache.set_policy(A_ID, AccountPolicy(version=1, ceiling_blocks=2))
    fill(cache, make_request(blocks(6, seed=9), B))
    fill(cache, make_request(blocks(2, seed=1), A))
    fill(cache, make_request(blocks(1, seed=2), A))
    assert cache.usage_by_account == {A_ID: AccountUsage(0, 2), B_ID: AccountUsage(0, 6)}
    assert cached_tokens(cache, [*blocks(2, seed=1), 0]) == 4


def test_at_its_ceiling_with_running_sequences_an_account_is_refused(cache: KVCache) -> None:
    cache.set_policy(A_ID, AccountPolicy(version=1, ceiling_blocks=3))
    table = prefill(cache, make_request(blocks(3, seed=1), A))
    assert not cache.allocate(table, 13)
    assert cache.shortfall(table, 13) == Shortfall(1, (A_ID,))
    assert counts(cache) == (5, 3, 0)


def test_a_lowered_ceiling_holds_at_once_for_cached_blocks(cache: KVCache) -> None:
    fill(cache, make_request(blocks(4, seed=1), A))
    cache.set_policy(A_ID, AccountPolicy(version=1, ceiling_blocks=1))
    assert counts(cache) == (7, 0, 1)


def test_an_account_that_runs_over_a_lowered_ceiling_is_asked_for_nothing_it_has(
    cache: KVCache,
) -> None:
    """Also for the blocks of another account's region: those are not charged to it."""
    table = prefill(cache, make_request(PROMPT, A))
    queued = cache.open(make_request(blocks(2, seed=1), A, spans=[Span(8, make_domain("pb_1"))]))
    cache.set_policy(A_ID, AccountPolicy(version=1, ceiling_blocks=1))
    assert cache.shortfall(table, 12) is None
    assert cache.allocate(table, 12)
    assert cache.allocate(queued, 8)
    assert not cache.allocate(queued, 9)


def test_policies_travel_with_requests(cache: KVCache) -> None:
    policy = AccountPolicy(version=3, ceiling_blocks=1)
    table = cache.open(make_request(PROMPT, A, policies={"tn_a": policy}))
    assert not cache.allocate(table, 8)


def test_below_its_floor_an_account_is_told_whom_to_preempt(cache: KVCache) -> None:
    cache.set_policy(A_ID, AccountPolicy(version=1, floor_blocks=4))
    hog = prefill(cache, make_request(blocks(8, seed=1), B))
    table = cache.open(make_request(PROMPT, A))
    assert not cache.allocate(table, 10)
    assert cache.shortfall(table, 10) == Shortfall(3, (B_ID,))
    cache.free(hog)
    assert cache.shortfall(table, 10) is None
    assert cache.allocate(table, 10)


def test_without_a_floor_nobody_is_named(cache: KVCache) -> None:
    prefill(cache, make_request(blocks(8, seed=1), B))
    assert cache.shortfall(cache.open(make_request(PROMPT, A)), 10) == Shortfall(3, ())


def test_asking_for_a_shortfall_changes_nothing(cache: KVCache) -> None:
    fill(cache, make_request(PROMPT, A))
    table = cache.open(make_request(blocks(8, seed=1), B))
    cache.drain_events()
    assert cache.shortfall(table, 32) is None
    assert counts(cache) == (6, 0, 2)
    assert cache.usage_by_account == {A_ID: AccountUsage(0, 2)}
    assert cache.drain_events() == []


@pytest.mark.parametrize(
    ("policies", "num_tokens", "expected"),
    [
        ({}, 32, True),
        ({}, 33, False),
        ({}, 10**15, False),
        ({"tn_a": AccountPolicy(ceiling_blocks=2)}, 8, True),
        ({"tn_a": AccountPolicy(ceiling_blocks=2)}, 9, False),
        ({"tn_b": AccountPolicy(floor_blocks=5)}, 12, True),
        ({"tn_b": AccountPolicy(floor_blocks=5)}, 13, False),
    ],
)
def test_what_can_never_fit_is_known_at_arrival(
    cache: KVCache, policies: dict[str, AccountPolicy], num_tokens: int, expected: bool
) -> None:
    assert cache.fits(make_request(PROMPT, A, policies=policies), num_tokens) is expected
    assert counts(cache) == (8, 0, 0)


# Purging


def test_a_purge_frees_cached_blocks_and_hides_running_ones(cache: KVCache) -> None:
    fill(cache, make_request(blocks(2, seed=1), A))
    running = prefill(cache, make_request(PROMPT, A))
    assert cache.purge(A_ID, EpochId("e2")) == 2
    assert counts(cache) == (5, 3, 0)
    assert cached_tokens(cache, PROMPT) == 0
    cache.free(running)
    assert counts(cache) == (8, 0, 0)


def test_a_purge_stops_insertion_by_running_sequences(cache: KVCache) -> None:
    table = prefill(cache, make_request(PROMPT, A))
    cache.purge(A_ID, EpochId("e2"))
    tokens = [*PROMPT, 70, 70]
    assert cache.allocate(table, 12)
    cache.publish(table, tokens, 12)
    child = cache.fork(table, 12)
    cache.publish(child, tokens, 12)
    cache.free(table)
    cache.free(child)
    assert counts(cache) == (8, 0, 0)


def test_a_purge_leaves_the_kept_epoch_and_other_accounts_alone(cache: KVCache) -> None:
    new = make_domain("tn_a", "e2")
    fill(cache, make_request(PROMPT, A))
    fill(cache, make_request(PROMPT, new))
    fill(cache, make_request(PROMPT, B))
    assert cache.purge(A_ID, EpochId("e2")) == 2
    assert cached_tokens(cache, PROMPT, A) == 0
    assert cached_tokens(cache, PROMPT, new) == 8
    assert cached_tokens(cache, PROMPT, B) == 8


def test_a_purge_of_everything_leaves_a_later_epoch_working(cache: KVCache) -> None:
    fill(cache, make_request(PROMPT, A))
    assert cache.purge(A_ID, None) == 2
    fill(cache, make_request(PROMPT, A))
    assert counts(cache) == (8, 0, 0)
    new = make_domain("tn_a", "e2")
    fill(cache, make_request(PROMPT, new))
    assert cached_tokens(cache, PROMPT, new) == 8


def test_a_purged_region_stops_what_is_behind_it(cache: KVCache) -> None:
    public = make_domain("pb_1")
    table = cache.open(make_request(PROMPT, A, spans=[Span(4, public)]))
    assert cache.allocate(table, 10)
    cache.purge(AccountId("pb_1"), EpochId("e2"))
    cache.publish(table, PROMPT, 10)
    cache.free(table)
    assert counts(cache) == (8, 0, 0)


def test_a_purged_region_stops_it_even_when_it_had_been_published(cache: KVCache) -> None:
    public = make_domain("pb_1")
    table = cache.open(make_request(PROMPT, A, spans=[Span(4, public)]))
    assert cache.allocate(table, 10)
    cache.publish(table, PROMPT, 4)
    cache.purge(AccountId("pb_1"), EpochId("e2"))
    cache.publish(table, PROMPT, 10)
    cache.free(table)
    assert counts(cache) == (8, 0, 0)


def test_a_purged_tenant_still_inserts_into_a_public_region(cache: KVCache) -> None:
    table = cache.open(make_request(PROMPT, A, spans=[Span(4, make_domain("pb_1"))]))
    assert cache.allocate(table, 10)
    cache.purge(A_ID, EpochId("e2"))
    cache.publish(table, PROMPT, 10)
    cache.free(table)
    assert counts(cache) == (7, 0, 1)


# Events


def test_events_tell_what_became_findable_and_what_no_longer_is(cache: KVCache) -> None:
    request = make_request(PROMPT, A)
    fill(cache, request)
    keys = request.block_keys
    assert cache.drain_events() == [BlockStored(keys, None, BLOCK_SIZE, A_ID)]
    cache.purge(A_ID, None)
    assert cache.drain_events() == [BlockRemoved(keys, A_ID)]
