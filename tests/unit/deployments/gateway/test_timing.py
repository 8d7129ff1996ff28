from __future__ import annotations

from deployments.bench.server_timing import parse_server_timing
from deployments.gateway.timing import StageTimer


class Seconds:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_laps_add_up_to_the_total() -> None:
    clock = Seconds()
    timer = StageTimer(clock)
    for stage, duration_s in (("hash", 0.001), ("route", 0.002), ("hash", 0.004)):
        clock.now_s += duration_s
        timer.lap(stage)
    clock.now_s += 5
    timer.skip()
    clock.now_s += 0.25
    timer.lap("admit")

    stages_s = parse_server_timing(timer.header())

    assert {stage: round(s, 6) for stage, s in stages_s.items()} == {
        "hash": 0.005,
        "route": 0.002,
        "admit": 0.25,
        "total": 5.257,
    }
