from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from freehold.engine.engine import LocalEngine
from freehold.errors import CapacityExceeded, EngineDead, InvalidRequest, StepFailed
from freehold.protocol import AccountId, FinishReason, RequestId
from tests.support.engines import (
    EOS,
    VOCAB_SIZE,
    ByteTokenizer,
    FakeClock,
    ids_of,
    make_card,
    make_config,
    make_request,
)
from tests.support.fake_executor import FakeExecutor, greedy_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import torch

    from freehold.engine.batch import StepBatch
    from freehold.protocol import Delta, Engine, GenerateRequest

PROMPT = ids_of("A prompt of some blocks, and a bit")


def first_step(step: int) -> bool:
    return step == 0


def every_step(_step: int) -> bool:
    return True


def unheard(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    pass


class GatedExecutor(FakeExecutor):
    """Waits before each step until the gate is open, so a test decides what happens when."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def execute(self, batch: StepBatch) -> torch.Tensor:
        self.entered.set()
        assert self.gate.wait(60)
        return super().execute(batch)


class Bench:
    """An engine with its gate and clock."""

    def __init__(self, fails: Callable[[int], bool] = lambda _: False, **config: Any) -> None:
        self.config = make_config(**({"coalesce_ms": 0} | config))
        self.executor = GatedExecutor(
            self.config.num_blocks, self.config.block_size, VOCAB_SIZE, fails
        )
        self.clock = FakeClock()
        self.events: list[object] = []
        self.engine = LocalEngine(
            self.executor,
            ByteTokenizer(),
            self.config,
            make_card(self.config),
            clock=self.clock,
            on_events=self.events.extend,
        )

    async def idle(self) -> None:
        """Until nothing runs, waits or is on its way."""
        report = self.engine.report()
        while report.num_running or report.num_waiting or report.active_blocks:
            await asyncio.sleep(0.001)
            report = self.engine.report()


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield make
    for bench in made:
        bench.executor.gate.set()
        bench.engine.close()


async def collect(engine: LocalEngine, request: GenerateRequest) -> list[Delta]:
    return [delta async for delta in engine.generate(request)]


def test_it_is_an_engine(make_bench: Callable[..., Bench]) -> None:
    engine: Engine = make_bench().engine
    assert engine.card().model == "fake"


async def test_a_stream_brings_the_whole_answer(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    request = make_request(PROMPT)
    deltas = await collect(bench.engine, request)
    tokens = [token for delta in deltas for token in delta.token_ids]
    assert tokens == greedy_tokens(PROMPT, VOCAB_SIZE, 8, [EOS])
    assert deltas[0].timing is not None
    assert deltas[-1].finish_reason is FinishReason.LENGTH
    assert bench.engine.final_usage(request.request_id) == deltas[-1].usage
    await bench.idle()
    assert bench.events, "blocks became findable"


async def test_tokens_are_joined_but_for_the_first(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(coalesce_ms=15)
    for _ in range(2):
        deltas = await collect(bench.engine, make_request(PROMPT, request_id="same"))
        # The clock stands still, so only the first and the last are due.
        assert [len(delta.token_ids) for delta in deltas] == [1, 7]


async def test_many_streams_at_once(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    prompts = [ids_of(f"{i}: one of many requests") for i in range(40)]
    answers = await asyncio.gather(*(collect(bench.engine, make_request(p)) for p in prompts))
    for prompt, deltas in zip(prompts, answers, strict=True):
        tokens = [token for delta in deltas for token in delta.token_ids]
        assert tokens == greedy_tokens(prompt, VOCAB_SIZE, 8, [EOS])


async def test_errors_reach_the_caller(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_waiting=2)
    with pytest.raises(InvalidRequest):
        await collect(bench.engine, make_request(PROMPT, model="other"))
    with pytest.raises(CapacityExceeded):
        await collect(bench.engine, make_request(PROMPT, n=3))


async def test_closing_a_stream_returns_its_blocks(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    request = make_request(PROMPT, max_tokens=150, ignore_eos=True)
    stream: AsyncIterator[Delta] = bench.engine.generate(request)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # it is an async generator
    await bench.idle()
    usage = bench.engine.final_usage(request.request_id)
    assert usage is not None
    assert 0 < usage.output < 150
    assert bench.engine.report().num_aborted_total == 1


async def test_a_refused_duplicate_does_not_end_the_first(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.executor.gate.clear()
    first = asyncio.create_task(collect(bench.engine, make_request(PROMPT, request_id="same")))
    await asyncio.to_thread(bench.executor.entered.wait, 60)
    second = asyncio.create_task(collect(bench.engine, make_request(PROMPT, request_id="same")))
    await asyncio.sleep(0)
    bench.executor.gate.set()
    with pytest.raises(InvalidRequest):
        await second
    assert (await first)[-1].finish_reason is FinishReason.LENGTH


async def test_abort_ends_the_stream_with_its_reason(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.executor.gate.clear()
    request = make_request(PROMPT, max_tokens=150, n=2, ignore_eos=True)
    task = asyncio.create_task(collect(bench.engine, request))
    await asyncio.to_thread(bench.executor.entered.wait, 60)
    bench.engine.abort(request.request_id)
    bench.engine.abort(RequestId("never seen"))
    bench.executor.gate.set()
    reasons = [delta.finish_reason for delta in await task if delta.finish_reason]
    assert reasons == [FinishReason.ABORT] * 2


async def test_a_deadline_counts_from_arrival(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.executor.gate.clear()
    request = make_request(PROMPT, deadline_s=2.0, max_tokens=150, ignore_eos=True)
    task = asyncio.create_task(collect(bench.engine, request))
    await asyncio.to_thread(bench.executor.entered.wait, 60)
    bench.clock.now_s = 2.0
    bench.executor.gate.set()
    deltas = await task
    assert deltas[-1].finish_reason is FinishReason.ABORT
    assert len([token for delta in deltas for token in delta.token_ids]) == 1


async def test_a_failed_step_is_an_error_of_its_streams(
    make_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(fails=first_step)
    with pytest.raises(StepFailed):
        await collect(bench.engine, make_request(PROMPT))
    assert "a step failed" in caplog.text
    assert len(await collect(bench.engine, make_request(PROMPT))) > 0
    assert bench.engine.report().healthy


async def test_a_dead_engine_says_so(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(fails=every_step, max_consecutive_failures=1)
    with pytest.raises(StepFailed):
        await collect(bench.engine, make_request(PROMPT))
    with pytest.raises(EngineDead):
        await collect(bench.engine, make_request(PROMPT))
    assert not bench.engine.report().healthy
    bench.engine.abort(RequestId("any"))
    with pytest.raises(EngineDead):
        bench.engine.purge(AccountId("tn_a"), None)


async def test_a_bug_in_the_control_side_ends_every_stream(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()

    def broken(_: object, request: GenerateRequest) -> object:
        raise ZeroDivisionError(request.request_id)

    monkeypatch.setattr("freehold.kv.cache.KVCache.open", broken)
    with pytest.raises(EngineDead):
        await collect(bench.engine, make_request(PROMPT))
    assert not bench.engine.report().healthy


async def test_purge_drops_cached_blocks(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    await collect(bench.engine, make_request(PROMPT))
    await bench.idle()
    cached = bench.engine.report().cached_blocks
    freed = await asyncio.to_thread(bench.engine.purge, AccountId("tn_a"), None)
    assert freed == cached > 0


async def test_close_lets_running_requests_end(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.executor.gate.clear()
    task = asyncio.create_task(collect(bench.engine, make_request(PROMPT)))
    await asyncio.to_thread(bench.executor.entered.wait, 60)
    closing = asyncio.create_task(asyncio.to_thread(bench.engine.close, 60.0))
    await asyncio.sleep(0.01)
    bench.executor.gate.set()
    assert (await task)[-1].finish_reason is FinishReason.LENGTH
    await closing
    with pytest.raises(EngineDead):
        await collect(bench.engine, make_request(PROMPT))


async def test_close_aborts_what_is_left(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.executor.gate.clear()
    request = make_request(PROMPT, max_tokens=150, ignore_eos=True)
    task = asyncio.create_task(collect(bench.engine, request))
    await asyncio.to_thread(bench.executor.entered.wait, 60)
    closing = asyncio.create_task(asyncio.to_thread(bench.engine.close))
    await asyncio.sleep(0.01)
    bench.executor.gate.set()
    await closing
    assert (await task)[-1].finish_reason is FinishReason.ABORT
    report = bench.engine.report()
    assert (report.active_blocks, report.num_running, report.healthy) == (0, 0, False)


async def test_a_report_counts_what_is_on_its_way(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.executor.gate.clear()
    tasks = [asyncio.create_task(collect(bench.engine, make_request(PROMPT)))]
    await asyncio.to_thread(bench.executor.entered.wait, 60)
    tasks += [asyncio.create_task(collect(bench.engine, make_request(PROMPT))) for _ in range(3)]
    await asyncio.sleep(0)
    report = bench.engine.report()
    assert report.num_waiting >= 3
    assert report.queued_prefill_tokens >= 3 * len(PROMPT)
    bench.executor.gate.set()
    await asyncio.gather(*tasks)


def test_a_stream_whose_loop_is_gone_is_aborted(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.executor.gate.clear()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(unheard)  # the task below is lost on purpose
    task = loop.create_task(
        collect(bench.engine, make_request(PROMPT, max_tokens=150, ignore_eos=True))
    )
    loop.run_until_complete(asyncio.sleep(0))
    assert bench.executor.entered.wait(60)
    loop.close()
    bench.executor.gate.set()
    asyncio.run(bench.idle())
    assert bench.engine.report().num_aborted_total == 1
    assert not task.done()


async def test_a_thousand_disconnects_leave_nothing(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=48, max_waiting=2000, coalesce_ms=1)
    rng = random.Random(3)

    async def leave_early(number: int) -> None:
        prompt = ids_of(f"{rng.randrange(8)}: " + "shared " * rng.randrange(6))
        request = make_request(
            prompt,
            request_id=f"client-{number}",
            tenant=rng.choice("abc"),
            n=rng.choice([1, 1, 1, 3]),
            max_tokens=rng.randrange(1, 30),
            ignore_eos=True,
        )
        task = asyncio.create_task(collect(bench.engine, request))
        await asyncio.sleep(rng.random() * 0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for batch in range(20):
        await asyncio.gather(*(leave_early(50 * batch + i) for i in range(50)))
    await bench.idle()
    report = bench.engine.report()
    assert report.free_blocks + report.cached_blocks == 48
    assert report.num_finished_total + report.num_aborted_total <= 1000
    assert report.num_aborted_total > 0
    assert sum(usage.active_blocks for usage in report.accounts.values()) == 0
    assert report.healthy
