from __future__ import annotations

import pytest

from deployments.gateway.meter import UsageMeter
from deployments.gateway.ports import ReplicaLost
from deployments.gateway.refusals import GenerationAborted
from freehold.protocol import DEVICE, Delta, FinishReason, Medium, Usage

DISK = Medium("disk")


def delta(usage: Usage, finish: FinishReason | None = None) -> Delta:
    return Delta(0, (5,), "x", usage, finish_reason=finish)


def test_nothing_came_nothing_is_charged() -> None:
    assert UsageMeter(1).usage == Usage()


def test_usage_is_cumulative_within_a_prompt_and_summed_over_prompts() -> None:
    meter = UsageMeter(2)
    meter.take(0, delta(Usage(10, {DEVICE: 4}, 1)))
    meter.take(0, delta(Usage(10, {DEVICE: 4}, 2)))
    meter.take(1, delta(Usage(5, {DISK: 1}, 7)))

    assert meter.usage == Usage(15, {DEVICE: 4, DISK: 1}, 9)


def test_a_stream_that_just_stops_is_no_answer() -> None:
    meter = UsageMeter(2)
    meter.take(0, delta(Usage(), FinishReason.STOP))

    with pytest.raises(ReplicaLost):
        meter.check_complete()

    meter.take(0, delta(Usage(), FinishReason.LENGTH))
    meter.check_complete()


def test_an_aborted_choice_is_no_answer_but_is_charged() -> None:
    meter = UsageMeter(1)

    with pytest.raises(GenerationAborted):
        meter.take(0, delta(Usage(10, {}, 3), FinishReason.ABORT))

    assert meter.usage.output == 3
