from __future__ import annotations

import random
from collections import Counter
from math import exp
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from freehold.engine import sampler as sampler_module
from freehold.engine.penalties import SamplingState
from freehold.engine.sampler import Sampler
from freehold.protocol import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0, -1.0]])
PROBABILITIES = [float(p) for p in LOGITS[0].softmax(dim=-1)]


def state(*, seed: int = 0, output: Sequence[int] = (), **params: Any) -> SamplingState:
    fields: dict[str, Any] = {"max_tokens": 9, "temperature": 1.0} | params
    made = SamplingState(
        params=SamplingParams(**fields),
        prompt_ids=(0, 4),
        banned_until_min=(3,),
        random=random.Random(seed),
    )
    for token in output:
        made.observe(token)
    return made


def best(**params: Any) -> int:
    """The greedy token under ``params``."""
    return Sampler().sample(LOGITS, [state(temperature=0.0, **params)])[0].token_id


def drawn(num: int = 3000, logits: torch.Tensor = LOGITS, **params: Any) -> Counter[int]:
    """How often each token comes in ``num`` draws."""
    rows = [state(seed=seed, **params) for seed in range(num)]
    return Counter(s.token_id for s in Sampler().sample(logits.expand(num, -1), rows))


def test_greedy_takes_the_injected_argmax_only() -> None:
    calls: list[torch.Tensor] = []

    def last(logits: torch.Tensor) -> torch.Tensor:
        calls.append(logits)
        return torch.tensor([4])

    sampled = Sampler(last).sample(LOGITS.bfloat16(), [state(temperature=0.0)])
    assert [s.token_id for s in sampled] == [4]
    assert calls[0].dtype == torch.bfloat16, "the fast path converts nothing"


@pytest.mark.parametrize(
    "params", [{}, {"top_k": 5}, {"top_p": 0.9999999}, {"temperature": 0.5}, {"temperature": 3.0}]
)
def test_draws_follow_the_distribution(params: dict[str, Any]) -> None:
    counts = drawn(**params)
    expected = (LOGITS[0] / params.get("temperature", 1.0)).softmax(-1)
    for token, probability in enumerate(expected):
        assert counts[token] / 3000 == pytest.approx(float(probability), abs=0.03)


def test_top_k_keeps_the_best() -> None:
    assert set(drawn(top_k=2)) == {2, 3}
    assert set(drawn(top_k=1)) == {3}


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    first, second = PROBABILITIES[3], PROBABILITIES[2]
    assert set(drawn(top_p=first - 0.01)) == {3}
    assert set(drawn(top_p=first + 0.01)) == {2, 3}
    assert set(drawn(top_p=first + second + 0.01)) == {1, 2, 3}
    assert set(drawn(top_p=0.0)) == {3}


def test_top_p_counts_what_top_k_left() -> None:
    # Of {3, 2} alone, 3 has exp(3) / (exp(3) + exp(2)) = 0.73.
    assert set(drawn(top_k=2, top_p=0.72)) == {3}
    assert set(drawn(top_k=2, top_p=0.74)) == {2, 3}


def test_min_p_is_relative_to_the_best() -> None:
    assert set(drawn(min_p=exp(-1) + 0.01)) == {3}
    assert set(drawn(min_p=exp(-1) - 0.01)) == {2, 3}


def test_a_wide_nucleus_is_not_cut_by_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "_FIRST_CANDIDATES", 2)
    flat = torch.zeros(1, 5)
    assert set(drawn(logits=flat, top_p=0.99)) == {0, 1, 2, 3, 4}
    assert len(drawn(logits=flat, top_k=4)) == 4
    assert set(drawn(logits=flat, min_p=0.5)) == {0, 1, 2, 3, 4}
    # Of the three that top-k leaves, two reach 0.6; of all five it would take three.
    assert len(drawn(logits=flat, top_k=3, top_p=0.6)) == 2


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**64),
    others=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "temperature": st.sampled_from([0.0, 0.7]),
                "top_k": st.integers(0, 5),
                "top_p": st.floats(0.1, 1),
                "min_p": st.floats(0, 0.9),
                "logprobs": st.integers(0, 3),
                "presence_penalty": st.floats(-2, 2),
            },
        ),
        max_size=4,
    ),
    mine=st.sampled_from([{}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.1, "logprobs": 1}]),
)
def test_a_row_does_not_depend_on_its_neighbours(
    seed: int, others: list[dict[str, Any]], mine: dict[str, Any]
) -> None:
    alone = Sampler().sample(LOGITS, [state(seed=seed, **mine)])[0]
    rows = [*(state(**params) for params in others), state(seed=seed, **mine)]
    logits = torch.cat([*(torch.randn(1, 5) for _ in others), LOGITS])
    assert Sampler().sample(logits, rows)[-1].token_id == alone.token_id


def test_logit_bias() -> None:
    assert best(logit_bias={1: 2.5, 4: -100.0}) == 1


def test_tokens_that_end_are_banned_until_the_minimum() -> None:
    assert best(min_tokens=2, output=[1]) == 2
    assert best(min_tokens=2, output=[1, 1]) == 3


def test_repetition_penalty_counts_prompt_and_output() -> None:
    row = torch.tensor([[2.0, 1.9, -1.0, -1.0, -1.1]])
    sample = Sampler().sample
    assert sample(row, [state(temperature=0.0, repetition_penalty=1.1)])[0].token_id == 1
    again = state(temperature=0.0, repetition_penalty=4.0, output=[1])
    # Positive scores are divided, negative ones multiplied: 0.5, 0.475, -1, -1, -4.4.
    assert sample(row, [again])[0].token_id == 0


def test_frequency_penalty_grows_with_each_output_and_presence_does_not() -> None:
    assert best(frequency_penalty=0.6, output=[3]) == 3
    assert best(frequency_penalty=0.6, output=[3, 3]) == 2
    assert best(presence_penalty=0.9, output=[3, 3]) == 3
    assert best(presence_penalty=1.1, output=[3]) == 2
    assert best(presence_penalty=2.0) == 3, "the prompt does not count"


def test_a_mask_permits_what_it_names() -> None:
    row = state(temperature=0.0)
    row.allowed = torch.tensor([True, True, False, False, False])
    assert Sampler().sample(LOGITS, [row])[0].token_id == 1


def test_logprobs_are_the_models_own() -> None:
    asked = state(temperature=0.1, top_k=1, logit_bias={0: 100.0}, logprobs=2)
    sampled = Sampler().sample(
        LOGITS.clone(),
        [
            asked,
        ][:1],
    )[0]
    assert sampled.token_id == 0
    assert sampled.logprobs is not None
    assert exp(sampled.logprobs.chosen) == pytest.approx(PROBABILITIES[0])
    assert [token for token, _ in sampled.logprobs.top] == [3, 2]
    assert [exp(p) for _, p in sampled.logprobs.top] == pytest.approx(PROBABILITIES[3:1:-1])


def test_logprobs_without_alternatives() -> None:
    sampled = Sampler().sample(LOGITS, [state(temperature=0.0, logprobs=0)])[0]
    assert sampled.logprobs is not None
    assert sampled.logprobs.top == ()


def test_the_logits_are_left_as_they_came() -> None:
    before = LOGITS.clone()
    Sampler().sample(LOGITS, [state(logit_bias={1: 3.0}, presence_penalty=1.0, output=[2])])
    assert torch.equal(before, LOGITS)


def test_a_tiny_temperature_is_greedy() -> None:
    assert set(drawn(num=20, temperature=1e-7)) == {3}


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_draw_possible_tokens(number: float) -> None:
    class Fixed(random.Random):
        def random(self) -> float:
            return number

    logits = torch.tensor([[float("-inf"), 1.0, 2.0, float("-inf")]])
    for top_p in (1.0, 0.99):
        row = state(top_p=top_p)
        row.random = Fixed()
        assert Sampler().sample(logits, [row])[0].token_id in {1, 2}
