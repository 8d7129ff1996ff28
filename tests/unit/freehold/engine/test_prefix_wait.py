from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freehold.engine.prefix_wait import ComputingPrefixes
from freehold.engine.sequence import Awaited, RequestGroup
from freehold.kv.cache import KVCache
from freehold.protocol import CacheMode
from tests.support.engines import ids_of, make_request

if TYPE_CHECKING:
    from freehold.engine.sequence import Sequence

TEXT = "sixteen letters!"


def sequence(text: str, **request: Any) -> Sequence:
    group = RequestGroup(make_request(ids_of(text), **request), 0, 0.0)
    group.add_choices(KVCache(8, 4).open)
    return group.sequences[0]


def test_a_sequence_awaits_the_last_block_that_it_shares() -> None:
    computing = ComputingPrefixes(4)
    producer = sequence(TEXT)
    computing.claim(producer)
    assert computing.awaited_by(sequence(TEXT + " and more")) == Awaited(3, producer)
    assert computing.awaited_by(sequence(TEXT[:9] + " differs")) == Awaited(1, producer)
    assert computing.awaited_by(sequence("Another beginning")) is None


def test_the_block_of_the_last_token_is_computed_anyway() -> None:
    computing = ComputingPrefixes(4)
    producer = sequence(TEXT)
    computing.claim(producer)
    assert computing.awaited_by(sequence(TEXT)) == Awaited(2, producer)
    assert computing.awaited_by(sequence(TEXT[:4])) is None


def test_what_is_computed_is_awaited_no_longer() -> None:
    computing = ComputingPrefixes(4)
    producer, waiter = sequence(TEXT), sequence(TEXT + " and more")
    computing.claim(producer)
    computing.settle(producer, 0, 6)
    assert not computing.is_pending(waiter, Awaited(0, producer))
    assert computing.is_pending(waiter, Awaited(1, producer))
    computing.settle(producer, 6, 16)
    assert len(computing) == 0


def test_only_its_producer_settles_a_claim() -> None:
    computing = ComputingPrefixes(4)
    computing.claim(sequence(TEXT))
    second = sequence(TEXT)
    computing.claim(second)
    computing.settle(second, 0, 16)
    assert len(computing) == 4
    assert not computing.is_pending(sequence(TEXT), Awaited(0, second))


def test_what_was_found_in_the_cache_is_not_claimed() -> None:
    computing = ComputingPrefixes(4)
    producer = sequence(TEXT)
    producer.num_computed = 8
    computing.claim(producer)
    assert len(computing) == 2


def test_who_does_not_store_produces_nothing_and_who_does_not_look_up_waits_for_nothing() -> None:
    computing = ComputingPrefixes(4)
    computing.claim(sequence(TEXT, cache=CacheMode.NO_STORE))
    computing.claim(sequence(TEXT, cache=CacheMode.OFF))
    assert len(computing) == 0
    computing.claim(sequence(TEXT))
    assert computing.awaited_by(sequence(TEXT, cache=CacheMode.OFF)) is None
    assert computing.awaited_by(sequence(TEXT, cache=CacheMode.NO_STORE)) is not None


def test_another_tenants_block_is_never_awaited() -> None:
    computing = ComputingPrefixes(4)
    computing.claim(sequence(TEXT, tenant="a"))
    assert computing.awaited_by(sequence(TEXT, tenant="b")) is None
