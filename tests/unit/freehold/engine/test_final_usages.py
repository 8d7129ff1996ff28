from __future__ import annotations

from freehold.engine.final_usages import FinalUsages
from freehold.protocol import RequestId, Usage
from tests.support.engines import FakeClock


def test_a_usage_is_told_again_and_again_until_its_time_is_over() -> None:
    clock = FakeClock()
    usages = FinalUsages(ttl_s=600, max_entries=10, clock=clock)
    usages.record(RequestId("a"), Usage(prompt=1))
    clock.now_s = 599
    assert usages.get(RequestId("a")) == usages.get(RequestId("a")) == Usage(prompt=1)
    clock.now_s = 600
    assert usages.get(RequestId("a")) is None
    assert len(usages) == 0


def test_the_number_is_bounded_and_the_oldest_go_first() -> None:
    usages = FinalUsages(ttl_s=600, max_entries=2, clock=FakeClock())
    for i in range(5):
        usages.record(RequestId(str(i)), Usage(prompt=i))
    assert [usages.get(RequestId(str(i))) is not None for i in range(5)] == [False] * 3 + [True] * 2


def test_an_id_that_comes_again_counts_from_its_last_end() -> None:
    clock = FakeClock()
    usages = FinalUsages(ttl_s=10, max_entries=10, clock=clock)
    usages.record(RequestId("a"), Usage(prompt=1))
    usages.record(RequestId("b"), Usage(prompt=2))
    clock.now_s = 8
    usages.record(RequestId("a"), Usage(prompt=3))
    clock.now_s = 12
    assert usages.get(RequestId("b")) is None
    assert usages.get(RequestId("a")) == Usage(prompt=3)
