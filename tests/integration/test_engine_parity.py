"""Greedy output in float32 equals ``model.generate`` token by token, however it is computed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.support.parity import ModelEngine, Reference
from tests.support.tiny_models import FAMILIES, make_tiny_model

if TYPE_CHECKING:
    from tests.support.engines import Harness

MAX_TOKENS = 20
LENGTHS = (1, 2, 15, 16, 17, 31, 40, 64, 70, 90, 5, 33, 48, 49, 100, 8)


class Case:
    """A family's model, sixteen prompts and what the reference answers."""

    def __init__(self, engine: ModelEngine, reference: Reference) -> None:
        rng = random.Random(11)
        self.engine = engine
        self.reference = reference
        self.prompts = [[rng.randrange(3, 300) for _ in range(n)] for n in LENGTHS]
        self.expected = [reference.greedy(prompt, MAX_TOKENS) for prompt in self.prompts]

    def check_each(self, harness: Harness) -> None:
        """One after the other."""
        for prompt, expected in zip(self.prompts, self.expected, strict=True):
            (answer,) = self.engine.answers(harness, [prompt], MAX_TOKENS)
            assert self.reference.compare(prompt, expected, answer.token_ids()) == ""

    def check_together(self, harness: Harness) -> None:
        answers = self.engine.answers(harness, self.prompts, MAX_TOKENS)
        for prompt, expected, answer in zip(self.prompts, self.expected, answers, strict=True):
            assert self.reference.compare(prompt, expected, answer.token_ids()) == ""


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family: str = request.param
    folder = make_tiny_model(tmp_path_factory.mktemp(family), family)
    return Case(ModelEngine(folder), Reference(folder))


def test_the_reference_says_something(case: Case) -> None:
    assert len({tuple(answer) for answer in case.expected}) > len(LENGTHS) // 2
    assert sum(len(set(answer)) > 3 for answer in case.expected) > len(LENGTHS) // 2


def test_cold(case: Case) -> None:
    case.check_each(case.engine.harness())


def test_reused(case: Case) -> None:
    harness = case.engine.harness()
    case.check_each(harness)
    case.check_each(harness)
    assert harness.core.counters.cached_tokens >= sum((n - 1) // 16 * 16 for n in LENGTHS)


def test_a_prefix_of_another_request_is_reused(case: Case) -> None:
    harness = case.engine.harness()
    prompt = case.prompts[14]
    for length in (48, 64, 95):
        longer = [*prompt[:length], *case.prompts[6][:9]]
        expected = case.reference.greedy(longer, MAX_TOKENS)
        (answer,) = case.engine.answers(harness, [longer], MAX_TOKENS)
        assert case.reference.compare(longer, expected, answer.token_ids()) == ""
    assert harness.core.counters.cached_tokens == 48 + 64


def test_in_chunks(case: Case) -> None:
    case.check_each(case.engine.harness(max_step_tokens=32, max_num_seqs=16))


def test_in_a_batch(case: Case) -> None:
    harness = case.engine.harness(max_num_seqs=16)
    case.check_together(harness)
    case.check_together(harness)


def test_in_a_batch_of_chunks(case: Case) -> None:
    case.check_together(case.engine.harness(max_step_tokens=32, max_num_seqs=16))


def test_preempted(case: Case) -> None:
    harness = case.engine.harness(num_blocks=18, max_num_seqs=16)
    case.check_together(harness)
    assert harness.core.counters.num_preemptions > 0
