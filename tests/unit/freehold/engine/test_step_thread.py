from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freehold.engine.core import EngineCore
from freehold.engine.step_thread import StepThread
from freehold.engine.stream import Stream
from freehold.engine.vocabulary import Vocabulary
from freehold.protocol import FinishReason, Incarnation, RequestId
from tests.support.engines import (
    VOCAB_SIZE,
    ByteTokenizer,
    FakeClock,
    ids_of,
    make_card,
    make_config,
    make_request,
)
from tests.support.fake_executor import FakeExecutor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freehold.protocol import Delta


@pytest.fixture
def steps() -> Iterator[StepThread]:
    config, clock = make_config(), FakeClock()
    core = EngineCore(
        FakeExecutor(config.num_blocks, config.block_size, VOCAB_SIZE),
        Vocabulary(ByteTokenizer()),
        config,
        make_card(config),
        clock=clock,
        entropy=lambda: 0,
    )
    thread = StepThread(
        core, config, incarnation=Incarnation("i"), clock=clock, on_events=lambda _: None
    )
    yield thread
    thread.close(0)


async def read(stream: Stream) -> list[Delta]:
    deltas: list[Delta] = []
    while (delta := await stream.next()) is not None:
        deltas.append(delta)
    return deltas


async def test_a_late_cancel_does_not_end_the_next_request_of_that_id(steps: StepThread) -> None:
    former, current = Stream(RequestId("same")), Stream(RequestId("same"))
    request = make_request(ids_of("prompt"), request_id="same", max_tokens=100, ignore_eos=True)
    steps.submit(current, request)
    steps.cancel(former)
    assert (await read(current))[-1].finish_reason is FinishReason.LENGTH


async def test_who_is_cancelled_is_told_nothing_more(steps: StepThread) -> None:
    stream = Stream(RequestId("a"))
    steps.submit(stream, make_request(ids_of("prompt"), request_id="a", max_tokens=100))
    steps.cancel(stream)
    other = Stream(RequestId("b"))
    steps.submit(other, make_request(ids_of("prompt"), request_id="b"))
    await read(other)
    assert not stream.is_over
    assert steps.final_usages.get(RequestId("a")) is not None
    assert steps.report().num_aborted_total == 1
