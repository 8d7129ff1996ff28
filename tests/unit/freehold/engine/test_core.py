from __future__ import annotations

from typing import Any

import pytest

from freehold.errors import CapacityExceeded, EngineDead, InvalidRequest, StepFailed
from freehold.protocol import (
    AccountId,
    AccountPolicy,
    CacheMode,
    EpochId,
    FinishReason,
    Incarnation,
    ReplicaReport,
)
from tests.support.engines import (
    BOS,
    EOS,
    VOCAB_SIZE,
    Answer,
    CoreHarness,
    ids_of,
    make_config,
    make_request,
)
from tests.support.fake_executor import greedy_tokens

PROMPT = ids_of("A prompt of some blocks, and a bit")


def report_of(harness: CoreHarness) -> ReplicaReport:
    return harness.core.report(Incarnation("test"))


def assert_idle(harness: CoreHarness) -> None:
    report = report_of(harness)
    assert (report.active_blocks, report.num_running, report.num_waiting) == (0, 0, 0)
    assert report.free_blocks + report.cached_blocks == harness.config.num_blocks
    assert report.healthy


def expected(prompt: tuple[int, ...], num: int = 8) -> list[int]:
    return greedy_tokens(prompt, VOCAB_SIZE, num, [EOS])


def finish_reasons(answer: Answer) -> list[FinishReason | None]:
    return [delta.finish_reason for delta in answer.deltas if delta.finish_reason]


def test_greedy_output_is_a_function_of_the_prompt_alone() -> None:
    harness = CoreHarness()
    answer = harness.answer(make_request(PROMPT))
    assert answer.token_ids() == expected(PROMPT)
    assert finish_reasons(answer) == [FinishReason.LENGTH]
    assert_idle(harness)


@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 64])
def test_chunks_do_not_change_the_output(chunk: int) -> None:
    config = make_config(max_step_tokens=chunk, max_num_seqs=1, min_chunk_tokens=1)
    answer = CoreHarness(config).answer(make_request(PROMPT))
    assert answer.token_ids() == expected(PROMPT)


def test_a_repeated_prompt_is_found_and_another_tenants_is_not() -> None:
    harness = CoreHarness()
    first = harness.answer(make_request(PROMPT, tenant="a"))
    again = harness.answer(make_request(PROMPT, tenant="a"))
    other = harness.answer(make_request(PROMPT, tenant="b"))
    assert first.deltas[-1].usage.cached == 0
    assert again.deltas[-1].usage.cached == (len(PROMPT) - 1) // 4 * 4
    assert other.deltas[-1].usage.cached == 0
    counters = harness.core.counters
    assert counters.prompt_tokens == 3 * len(PROMPT)
    assert counters.cached_tokens == again.deltas[-1].usage.cached
    assert first.token_ids() == again.token_ids() == other.token_ids() == expected(PROMPT)


@pytest.mark.parametrize(
    ("stored", "looked_up", "hit"),
    [
        (CacheMode.ON, CacheMode.NO_STORE, True),
        (CacheMode.NO_STORE, CacheMode.ON, False),
        (CacheMode.ON, CacheMode.OFF, False),
        (CacheMode.OFF, CacheMode.ON, False),
    ],
)
def test_cache_modes(stored: CacheMode, looked_up: CacheMode, hit: bool) -> None:
    harness = CoreHarness()
    harness.answer(make_request(PROMPT, cache=stored))
    answer = harness.answer(make_request(PROMPT, cache=looked_up))
    assert (answer.deltas[-1].usage.cached > 0) is hit
    assert answer.token_ids() == expected(PROMPT)


def test_a_conversation_finds_its_decoded_blocks() -> None:
    harness = CoreHarness()
    first = harness.answer(make_request(PROMPT))
    longer = (*PROMPT, *first.token_ids(), *ids_of("and on"))
    answer = harness.answer(make_request(longer))
    # All but the last token of the first answer was computed.
    assert answer.deltas[-1].usage.cached == (len(PROMPT) + 7) // 4 * 4
    assert answer.token_ids() == expected(longer)


def test_a_burst_computes_a_shared_prefix_once() -> None:
    harness = CoreHarness(make_config(num_blocks=256, max_num_seqs=32, max_step_tokens=32))
    shared = ids_of("The same long system prompt for every one of these requests. " * 2)
    prompts = [(*shared, *ids_of(f"{chr(65 + i)} is the question")) for i in range(16)]
    answers = [harness.add(make_request(prompt)) for prompt in prompts]
    harness.run()
    assert [a.token_ids() for a in answers] == [expected(prompt) for prompt in prompts]
    num_shared = len(shared) // 4 * 4
    computed = harness.core.counters.computed_prefill_tokens
    assert computed == len(prompts[0]) + 15 * (len(prompts[0]) - num_shared)


def test_tenants_never_wait_for_each_others_prefix() -> None:
    harness = CoreHarness(make_config(num_blocks=256))
    harness.add(make_request(PROMPT, tenant="a"))
    harness.add(make_request(PROMPT, tenant="b"))
    harness.step()
    assert report_of(harness).num_running == 2


def test_a_waiter_computes_the_prefix_itself_when_its_producer_is_aborted() -> None:
    harness = CoreHarness(make_config(max_step_tokens=8))
    producer = make_request(PROMPT)
    harness.add(producer)
    harness.step()
    waiter = harness.add(make_request(PROMPT))
    harness.step()
    assert report_of(harness).num_waiting == 1
    harness.abort(producer.request_id)
    harness.run()
    assert waiter.token_ids() == expected(PROMPT)
    assert_idle(harness)


@pytest.mark.parametrize("cache", [CacheMode.ON, CacheMode.OFF])
def test_choices_fork_from_one_prefill(cache: CacheMode) -> None:
    harness = CoreHarness()
    answer = harness.answer(make_request(PROMPT, n=4, cache=cache))
    assert [answer.token_ids(i) for i in range(4)] == [expected(PROMPT)] * 4
    rest = len(PROMPT) - (len(PROMPT) - 1) // 4 * 4
    assert harness.core.counters.computed_prefill_tokens == len(PROMPT) + 3 * rest
    usage = answer.deltas[-1].usage
    assert (usage.prompt, usage.output) == (len(PROMPT), 4 * 8)
    assert_idle(harness)


def test_more_choices_than_can_run_together_take_turns() -> None:
    harness = CoreHarness(make_config(num_blocks=16, max_num_seqs=8))
    answer = harness.answer(make_request(PROMPT, n=8))
    assert [answer.token_ids(i) for i in range(8)] == [expected(PROMPT)] * 8
    assert_idle(harness)


def test_preemption_changes_nothing_but_the_count() -> None:
    harness = CoreHarness(make_config(num_blocks=18))
    prompts = [ids_of(f"{i}: a prompt with its own text") for i in range(4)]
    answers = [harness.add(make_request(p, max_tokens=24, ignore_eos=True)) for p in prompts]
    harness.run()
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.token_ids() == greedy_tokens(prompt, VOCAB_SIZE, 24)
        assert answer.deltas[-1].usage.cached == 0, "its own tokens found again are no discount"
    assert harness.core.counters.num_preemptions > 0
    assert_idle(harness)


def test_seeded_choices_do_not_depend_on_the_batch() -> None:
    def request() -> list[int]:
        return answer.token_ids(0) + answer.token_ids(1)

    sampling: dict[str, Any] = {
        "temperature": 1.0,
        "seed": 5,
        "n": 2,
        "top_p": 0.9,
        "max_tokens": 12,
    }
    answer = CoreHarness().answer(make_request(PROMPT, **sampling))
    alone = request()
    harness = CoreHarness(make_config(num_blocks=24, max_step_tokens=9))
    for i in range(3):
        harness.add(make_request(ids_of(f"company {i}"), temperature=1.0))
    answer = harness.add(make_request(PROMPT, **sampling))
    harness.run()
    assert request() == alone
    assert answer.token_ids(0) != answer.token_ids(1)


def test_an_end_of_sequence_token_ends_the_choice_without_text() -> None:
    bias = {EOS: 100.0}
    answer = CoreHarness().answer(make_request(PROMPT, logit_bias=bias, min_tokens=3))
    last = answer.deltas[-1]
    assert (answer.token_ids()[-1], len(answer.token_ids())) == (EOS, 4)
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, None)
    assert "<eos>" not in answer.text()


def test_ignored_end_of_sequence_goes_on() -> None:
    answer = CoreHarness().answer(make_request(PROMPT, logit_bias={EOS: 100.0}, ignore_eos=True))
    assert answer.token_ids() == [EOS] * 8
    assert finish_reasons(answer) == [FinishReason.LENGTH]


def test_a_stop_token_is_named() -> None:
    token = expected(PROMPT)[3]
    answer = CoreHarness().answer(make_request(PROMPT, stop_token_ids=(token,)))
    assert answer.token_ids() == expected(PROMPT)[:4]
    assert answer.deltas[-1].stop_reason == token


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_cuts_the_text(include: bool) -> None:
    bias = dict.fromkeys(ids_of("abc"), 50.0)
    free = CoreHarness().answer(make_request(PROMPT, logit_bias=bias, max_tokens=32)).text()
    stop = free[9:12]
    at = free.index(stop)
    answer = CoreHarness().answer(
        make_request(
            PROMPT, logit_bias=bias, max_tokens=32, stop=(stop,), include_stop_in_output=include
        )
    )
    assert answer.text() == free[: at + len(stop) if include else at]
    assert answer.deltas[-1].stop_reason == stop
    assert len(answer.token_ids()) == at + len(stop)


def test_stop_strings_count_from_the_minimum_length() -> None:
    bias = {ids_of("a")[0]: 100.0}
    answer = CoreHarness().answer(
        make_request(PROMPT, logit_bias=bias, max_tokens=20, min_tokens=5, stop=("aa",))
    )
    # Four tokens come before the minimum, the fifth and sixth make the stop string.
    assert (answer.text(), len(answer.token_ids())) == ("aaaa", 6)


def test_text_held_back_for_a_stop_string_is_shown_at_the_end() -> None:
    bias = {ids_of("a")[0]: 100.0}
    answer = CoreHarness().answer(
        make_request(PROMPT, logit_bias=bias, max_tokens=3, stop=("aaaaaa",))
    )
    assert [delta.text for delta in answer.deltas] == ["", "", "aaa"]
    assert answer.deltas[-1].finish_reason is FinishReason.LENGTH


def test_a_character_cut_off_at_the_end_is_replaced() -> None:
    bias = {ids_of("é")[0]: 100.0}
    answer = CoreHarness().answer(make_request(PROMPT, logit_bias=bias, max_tokens=1))
    assert answer.text() == "\ufffd"


def test_the_context_length_ends_a_choice() -> None:
    harness = CoreHarness(max_model_len=len(PROMPT) + 3)
    answer = harness.answer(make_request(PROMPT, max_tokens=50, ignore_eos=True))
    assert len(answer.token_ids()) == 3
    assert finish_reasons(answer) == [FinishReason.LENGTH]


def test_logprobs_come_with_every_token() -> None:
    answer = CoreHarness().answer(make_request(PROMPT, logprobs=2))
    positions = [p for delta in answer.deltas for p in delta.logprobs]
    assert [p.chosen.token_id for p in positions] == answer.token_ids()
    assert all(p.chosen == p.top[0] for p in positions), "greedy takes the most likely token"
    assert all(len(p.top) == 2 for p in positions)


def test_timing_comes_with_the_first_delta_only() -> None:
    harness = CoreHarness()
    answer = harness.add(make_request(PROMPT, n=2))
    harness.clock.now_s = 3.0
    harness.run()
    assert answer.deltas[0].timing is not None
    assert answer.deltas[0].timing.scheduled_s == 3.0
    assert all(delta.timing is None for delta in answer.deltas[1:])


@pytest.mark.parametrize("steps", range(7))
def test_abort_at_any_point_returns_every_block(steps: int) -> None:
    harness = CoreHarness(make_config(max_step_tokens=16))
    request = make_request(PROMPT, n=2, max_tokens=30, ignore_eos=True)
    answer = harness.add(request)
    for _ in range(steps):
        harness.step()
    harness.abort(request.request_id)
    harness.abort(request.request_id)
    assert [answer.of(i)[-1].finish_reason for i in range(2)] == [FinishReason.ABORT] * 2
    assert answer.ended is not None
    assert answer.ended.usage.output == len(answer.token_ids(0)) + len(answer.token_ids(1))
    assert_idle(harness)


def test_a_deadline_ends_the_request() -> None:
    harness = CoreHarness()
    answer = harness.add(make_request(PROMPT, deadline_s=5.0, max_tokens=100, ignore_eos=True))
    harness.step()
    harness.clock.now_s = 5.0
    harness.run()
    assert finish_reasons(answer) == [FinishReason.ABORT]
    assert_idle(harness)


def test_a_failed_step_costs_its_requests_only() -> None:
    harness = CoreHarness(fails=lambda step: step == 1)
    hit = harness.add(make_request(PROMPT))
    harness.step()
    output = harness.step()
    assert type(output.failure).__name__ == "DeviceLost"
    assert hit.ended is not None
    assert isinstance(hit.ended.error, StepFailed)
    assert "secret" not in str(hit.ended.error)
    assert_idle(harness)
    assert harness.answer(make_request(PROMPT)).token_ids() == expected(PROMPT)


def test_what_a_failed_step_wrote_is_not_findable() -> None:
    harness = CoreHarness(fails=lambda step: step == 0)
    harness.answer(make_request(PROMPT))
    assert harness.answer(make_request(PROMPT)).deltas[-1].usage.cached == 0


def test_failures_in_a_row_kill_the_engine() -> None:
    harness = CoreHarness(make_config(max_num_seqs=1), fails=lambda _: True)
    answers = [harness.add(make_request(ids_of(f"request {i}"))) for i in range(5)]
    harness.run()
    errors = [type(a.ended.error) for a in answers if a.ended]
    assert errors == [StepFailed] * 3 + [EngineDead] * 2
    assert_idle(harness)
    with pytest.raises(EngineDead):
        harness.add(make_request(PROMPT))


def test_failures_with_successes_between_do_not_add_up() -> None:
    harness = CoreHarness(make_config(max_consecutive_failures=2), fails=lambda step: step % 9 == 0)
    for _ in range(5):
        harness.answer(make_request(PROMPT))
    assert len(harness.executor.batches) > 2 * 9
    assert harness.core.dead is None


def test_a_full_queue_refuses() -> None:
    harness = CoreHarness(make_config(max_waiting=3))
    harness.add(make_request(PROMPT, n=2))
    with pytest.raises(CapacityExceeded) as refused:
        harness.add(make_request(PROMPT, n=2))
    assert refused.value.retry_after_s >= 1
    harness.add(make_request(PROMPT))


def test_an_account_at_its_ceiling_does_not_hold_up_others() -> None:
    harness = CoreHarness()
    policies = {AccountId("tn_a"): AccountPolicy(version=1, ceiling_blocks=12)}
    capped: dict[str, Any] = {"policies": policies, "max_tokens": 12, "ignore_eos": True}
    prompts = [ids_of(f"{i}: a tenant that sends a lot") for i in range(3)]
    mine = [harness.add(make_request(p, **capped)) for p in prompts]
    other = harness.add(make_request(PROMPT, tenant="b"))
    harness.step()
    assert other.deltas, "the other tenant's request runs at once"
    harness.run()
    assert [a.token_ids() for a in mine] == [greedy_tokens(p, VOCAB_SIZE, 12) for p in prompts]
    assert harness.core.counters.num_preemptions == 0 or other.ended is not None
    assert_idle(harness)


def test_a_policy_that_shrinks_below_a_queued_request_ends_it() -> None:
    harness = CoreHarness()
    answer = harness.add(make_request(PROMPT))
    harness.core.kv.set_policy(AccountId("tn_a"), AccountPolicy(version=1, ceiling_blocks=2))
    harness.run()
    assert answer.ended is not None
    assert isinstance(answer.ended.error, CapacityExceeded)
    assert harness.executor.batches == []
    assert_idle(harness)


def test_a_purge_stops_insertion_by_running_requests() -> None:
    harness = CoreHarness(make_config(max_step_tokens=8))
    harness.add(make_request(PROMPT))
    harness.step()
    harness.core.purge(AccountId("tn_a"), EpochId("the next one"))
    harness.run()
    assert report_of(harness).cached_blocks == 0


@pytest.mark.parametrize(
    ("param", "changes"),
    [
        ("model", {"model": "other"}),
        ("fingerprint", {"fingerprint": "other"}),
        ("block_keys", {"block_size": 8}),
        ("token_ids", {"token_ids": ()}),
        ("token_ids", {"token_ids": (VOCAB_SIZE,)}),
        ("token_ids", {"token_ids": (BOS,) * 200}),
        ("max_tokens", {"max_tokens": 0}),
        ("n", {"n": 0}),
        ("n", {"n": 9}),
        ("stop_token_ids", {"stop_token_ids": (VOCAB_SIZE,)}),
        ("logit_bias", {"logit_bias": {-1: 1.0}}),
        ("max_tokens", {"token_ids": (BOS,) * 90, "max_tokens": 100}),
        ("token_ids", {"token_ids": (BOS,) * 129}),
    ],
)
def test_what_can_never_run_is_refused_by_name(param: str, changes: dict[str, Any]) -> None:
    harness = CoreHarness(make_config(num_blocks=32))
    arguments: dict[str, Any] = {"token_ids": PROMPT} | changes
    with pytest.raises(InvalidRequest) as refused:
        harness.add(make_request(**arguments))
    assert refused.value.param == param
    assert not harness.core.has_work


def test_a_running_id_is_refused() -> None:
    harness = CoreHarness()
    harness.add(make_request(PROMPT, request_id="twice"))
    with pytest.raises(InvalidRequest) as refused:
        harness.core.add(make_request(PROMPT, request_id="twice"), 0.0)
    assert refused.value.param == "request_id"


def test_the_last_token_needs_no_slot() -> None:
    harness = CoreHarness(make_config(num_blocks=4))
    answer = harness.answer(make_request(PROMPT[:8], max_tokens=9, ignore_eos=True))
    assert len(answer.token_ids()) == 9
