"""Whatever else runs, however it is cut, preempted, shared or aborted: the same tokens come out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st

from freehold.engine.penalties import SamplingState
from freehold.engine.sampler import Sampler
from freehold.errors import CapacityExceeded, InvalidRequest
from freehold.protocol import (
    AccountId,
    AccountPolicy,
    CacheMode,
    FinishReason,
    GenerateRequest,
    Incarnation,
    SamplingParams,
)
from tests.support.engines import (
    EOS,
    NUM_SPECIALS,
    VOCAB_SIZE,
    Answer,
    CoreHarness,
    make_config,
    make_request,
)
from tests.support.fake_executor import logits_after

torch.set_num_threads(1)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that comes ``gap`` steps after the one before; aborted after ``patience`` steps."""

    gap: int
    request: dict[str, Any]
    patience: int | None
    purges: bool


_LONG, _OTHER = (5,) * 13, (6, 7) * 10
PROMPTS = [
    (NUM_SPECIALS,),
    (*_LONG, 3),
    (*_LONG, *_LONG, 4, 4),
    (*_LONG, *_LONG, *_OTHER),
    _OTHER,
    (*_OTHER, 3, 4, 5),
    (*_OTHER, *_LONG),
    (*_OTHER, *_OTHER, 8),
]
"""Few and with long shared beginnings, so that most requests find or await another's blocks."""


def arrivals() -> st.SearchStrategy[Arrival]:
    request = st.fixed_dictionaries(
        {
            "token_ids": st.sampled_from(PROMPTS),
            "max_tokens": st.sampled_from([50, 50, 24, 1]),
            "n": st.sampled_from([1, 1, 1, 2, 4]),
            "tenant": st.sampled_from("aab"),
            "cache": st.sampled_from([*(CacheMode.ON,) * 6, CacheMode.NO_STORE, CacheMode.OFF]),
            "temperature": st.sampled_from([0.0, 1.0]),
            "seed": st.integers(0, 3),
            "top_p": st.sampled_from([1.0, 0.5]),
            "presence_penalty": st.sampled_from([0.0, 1.5]),
            "logit_bias": st.sampled_from([{}, {}, {}, {EOS: 2.0}]),
        }
    )
    gap = st.sampled_from([0, 0, 1, 2, 5])
    patience = st.sampled_from([None, None, None, 0, 1, 2, 4, 8, 16])
    purges = st.sampled_from([False] * 9 + [True])
    return st.builds(Arrival, gap, request, patience, purges)


def expected(request: GenerateRequest, index: int) -> list[int]:
    """Choice ``index`` computed alone, token by token, without any engine."""
    params: SamplingParams = request.sampling
    state = SamplingState(params, request.token_ids, (), random.Random((params.seed or 0) + index))
    token_ids = list(request.token_ids)
    for _ in range(params.max_tokens):
        logits = logits_after(token_ids, VOCAB_SIZE).unsqueeze(0)
        token = Sampler().sample(logits, [state])[0].token_id
        state.observe(token)
        token_ids.append(token)
        if token == EOS:
            break
    return token_ids[len(request.token_ids) :]


def check(request: GenerateRequest, answer: Answer) -> None:
    assert answer.ended is not None
    assert answer.ended.error is None
    for index in range(request.sampling.n):
        reasons = [d.finish_reason for d in answer.of(index) if d.finish_reason is not None]
        assert len(reasons) == 1
        tokens, whole = answer.token_ids(index), expected(request, index)
        if reasons == [FinishReason.ABORT]:
            assert tokens == whole[: len(tokens)]
        else:
            assert tokens == whole
    usage = answer.ended.usage
    assert usage.output == sum(len(answer.token_ids(i)) for i in range(request.sampling.n))
    assert usage.cached < usage.prompt == len(request.token_ids)
    if request.cache is CacheMode.OFF:
        assert usage.cached == 0


def policies(block_size: int) -> st.SearchStrategy[dict[AccountId, AccountPolicy]]:
    """Floors and ceilings near what one or two requests need, so that accounts get tight."""
    policy = st.builds(
        AccountPolicy,
        version=st.just(1),
        floor_blocks=st.sampled_from([0, 16 // block_size]),
        ceiling_blocks=st.sampled_from([None, 112 // block_size]),
    )
    accounts = st.sampled_from([AccountId("tn_a"), AccountId("tn_b")])
    return st.dictionaries(accounts, policy, max_size=2)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_output_depends_on_the_request_alone_and_every_block_comes_back(
    data: st.DataObject,
) -> None:
    arriving = data.draw(st.lists(arrivals(), min_size=5, max_size=10))
    block_size = data.draw(st.sampled_from([2, 4, 8]))
    limits = data.draw(policies(block_size))
    config = make_config(
        num_blocks=data.draw(st.sampled_from([128, 144, 192, 512])) // block_size,
        block_size=block_size,
        max_num_seqs=data.draw(st.sampled_from([6, 5, 4, 1])),
        max_step_tokens=data.draw(st.sampled_from([6, 13, 64])),
        min_chunk_tokens=4,
        max_prefix_waits=data.draw(st.sampled_from([3, 1, 0])),
    )
    harness = CoreHarness(config)
    running: list[tuple[GenerateRequest, int | None]] = []
    accepted: list[GenerateRequest] = []

    def step() -> None:
        nonlocal running
        harness.step()
        for request, patience in running:
            if patience == 0:
                harness.abort(request.request_id)
        running = [(r, p - 1 if p else p) for r, p in running if p != 0]

    for arrival in arriving:
        for _ in range(arrival.gap):
            step()
        if arrival.purges:
            harness.core.purge(AccountId(f"tn_{arrival.request['tenant']}"), None)
        request = make_request(block_size=block_size, policies=limits, **arrival.request)
        try:
            harness.add(request)
        except (InvalidRequest, CapacityExceeded):
            continue
        accepted.append(request)
        running.append((request, arrival.patience))
    for _ in range(5000):
        if not harness.core.has_work:
            break
        step()

    for request in accepted:
        check(request, harness.answers[request.request_id])
    report = harness.core.report(Incarnation("test"))
    event("preempted" if report.num_preemptions_total else "never preempted")
    event(f"{len(accepted)} accepted")
    event("hits" if report.cached_tokens_total else "no hits")
    assert (report.active_blocks, report.num_running, report.num_waiting) == (0, 0, 0)
    assert report.free_blocks + report.cached_blocks == config.num_blocks
    assert report.num_finished_total + report.num_aborted_total == len(accepted)
    assert report.output_tokens_total == sum(
        harness.answers[r.request_id].deltas[-1].usage.output for r in accepted
    )
