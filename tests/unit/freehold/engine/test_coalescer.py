from __future__ import annotations

from freehold.engine.coalescer import Coalescer
from freehold.protocol import Delta, EngineTiming, FinishReason, RequestId, Usage

ID = RequestId("r")


def delta(
    token: int, index: int = 0, finish: FinishReason | None = None, *, first: bool = False
) -> Delta:
    timing = EngineTiming(0.1, 0.2) if first else None
    return Delta(index, (token,), str(token), Usage(output=token), (), finish, None, timing)


def due(coalescer: Coalescer, now_s: float) -> list[tuple[int, str]]:
    return [(d.index, d.text) for _, d in coalescer.due(now_s)]


def test_the_first_delta_of_a_choice_is_due_at_once_and_the_next_after_the_interval() -> None:
    coalescer = Coalescer(0.015)
    coalescer.add(ID, delta(1))
    assert due(coalescer, 0.0) == [(0, "1")]
    coalescer.add(ID, delta(2))
    coalescer.add(ID, delta(3, index=1))
    assert due(coalescer, 0.010) == [(1, "3")]
    coalescer.add(ID, delta(4))
    assert due(coalescer, 0.015) == [(0, "24")]
    assert due(coalescer, 1.0) == []


def test_the_last_delta_is_due_at_once() -> None:
    coalescer = Coalescer(10.0)
    coalescer.add(ID, delta(1))
    coalescer.due(0.0)
    coalescer.add(ID, delta(2))
    coalescer.add(ID, delta(3, finish=FinishReason.STOP))
    ((_, last),) = coalescer.due(0.0)
    assert (last.token_ids, last.text) == ((2, 3), "23")
    assert (last.usage.output, last.finish_reason) == (3, FinishReason.STOP)


def test_joined_deltas_keep_the_first_ones_timing() -> None:
    coalescer = Coalescer(0.0)
    coalescer.add(ID, delta(1, first=True))
    coalescer.add(ID, delta(2))
    ((_, joined),) = coalescer.due(0.0)
    assert joined.timing == EngineTiming(0.1, 0.2)


def test_a_forgotten_request_holds_nothing() -> None:
    coalescer = Coalescer(0.0)
    coalescer.add(ID, delta(1))
    coalescer.forget(ID)
    assert due(coalescer, 1.0) == []
