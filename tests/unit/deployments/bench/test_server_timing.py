from __future__ import annotations

import pytest

from deployments.bench.server_timing import parse_server_timing


def test_durations_become_seconds_in_the_headers_order() -> None:
    stages_s = parse_server_timing("template;dur=1.5, tokenize;dur=0.25,engine;dur=30")

    assert list(stages_s) == ["template", "tokenize", "engine"]
    assert stages_s == pytest.approx({"template": 0.0015, "tokenize": 0.00025, "engine": 0.03})


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", {}),
        ("miss", {}),
        ("cache;desc=hit", {}),
        ("hash;dur=fast", {}),
        (';dur=1, route;desc="to 1";dur="2"', {"route": 0.002}),
    ],
)
def test_metrics_without_a_duration_are_left_out(header: str, expected: dict[str, float]) -> None:
    assert parse_server_timing(header) == expected
