from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.bench.statistics import Latency, median, percentile

seconds = st.lists(st.floats(0, 1e4, allow_nan=False), min_size=1, max_size=50)


@given(seconds, st.floats(0, 100))
def test_a_percentile_is_numpys_linear_one(values: list[float], q: float) -> None:
    assert percentile(values, q) == pytest.approx(float(np.percentile(values, q)), abs=1e-9)


def test_a_median_lies_between_its_neighbours() -> None:
    assert median([4.0, 1.0]) == 2.5
    assert median([9.0, 1.0, 5.0]) == 5.0


@pytest.mark.parametrize(("values", "q"), [([], 50), ([1.0], -1), ([1.0], 101)])
def test_no_values_or_no_percentile_is_an_error(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="need values"):
        percentile(values, q)


def test_latency_sums_up_its_samples() -> None:
    latency = Latency.of([float(i) for i in range(101)])

    assert (latency.count, latency.mean_s, latency.max_s) == (101, 50.0, 100.0)
    assert (latency.p50_s, latency.p90_s, latency.p99_s) == (50.0, 90.0, 99.0)
