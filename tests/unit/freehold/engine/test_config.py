from __future__ import annotations

from typing import Any

import pytest

from freehold.engine.config import EngineConfig


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_blocks": 0}, "num_blocks"),
        ({"max_waiting": -1}, "max_waiting"),
        ({"max_step_ms": 0.0}, "max_step_ms"),
        ({"max_step_tokens": 63}, "max_step_tokens"),
    ],
)
def test_a_limit_under_which_nothing_could_run_is_named(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        EngineConfig(**({"num_blocks": 10} | changes))


def test_waiting_and_joining_can_be_turned_off() -> None:
    assert EngineConfig(num_blocks=10, max_prefix_waits=0, coalesce_ms=0).coalesce_ms == 0
