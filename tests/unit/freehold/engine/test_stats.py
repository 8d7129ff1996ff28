from __future__ import annotations

import pytest

from freehold.engine.stats import StepTimes


def budget(times: StepTimes, num_decodes: int) -> int:
    return times.prefill_budget(
        num_decodes, max_step_tokens=1024, max_step_s=0.05, min_chunk_tokens=64
    )


def test_nothing_decoding_means_the_whole_step() -> None:
    assert budget(StepTimes(prefill_tokens_per_s=1000, decode_step_s=0.02), 0) == 1024


def test_decodes_bound_the_chunk_by_the_measured_rate() -> None:
    assert budget(StepTimes(prefill_tokens_per_s=4000, decode_step_s=0.02), 8) == 120


def test_a_chunk_never_falls_below_the_minimum_nor_above_the_step() -> None:
    assert budget(StepTimes(prefill_tokens_per_s=1000, decode_step_s=0.2), 8) == 64
    assert budget(StepTimes(prefill_tokens_per_s=1e9, decode_step_s=0.01), 8) == 1016
    assert budget(StepTimes(prefill_tokens_per_s=1000, decode_step_s=0.2), 1000) == 24


def test_unmeasured_is_unbounded() -> None:
    assert budget(StepTimes(), 8) == 1016


def test_a_mixed_step_is_charged_less_its_decodes() -> None:
    times = StepTimes()
    times.observe(0, 4, 0.02)
    times.observe(100, 4, 0.12)
    assert times.decode_step_s == pytest.approx(0.02)
    assert times.prefill_tokens_per_s == pytest.approx(1000)


def test_measurements_are_smoothed() -> None:
    times = StepTimes()
    for elapsed_s in (0.01, 0.02):
        times.observe(0, 1, elapsed_s)
    assert times.decode_step_s == pytest.approx(0.012)


def test_tiny_chunks_and_instant_steps_measure_nothing_absurd() -> None:
    times = StepTimes()
    times.observe(3, 0, 0.01)
    assert times.prefill_tokens_per_s == 0
    times.observe(100, 0, 0.0)
    assert times.prefill_tokens_per_s > 0
