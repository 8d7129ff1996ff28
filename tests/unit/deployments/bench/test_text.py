from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from deployments.bench.client import Service
from deployments.bench.target import Target
from deployments.bench.text import Ruler, handbook, question
from freehold.secret import Secret
from tests.support.fake_openai import TEMPLATE_TOKENS, FakeOpenAI

LONGEST_PART = 200

MakeText = Callable[[random.Random, int], str]


@pytest.mark.parametrize("make", [handbook, question])
@pytest.mark.parametrize("length", [0, 100, 5000])
def test_text_is_as_long_as_wanted_up_to_one_phrase(make: MakeText, length: int) -> None:
    text = make(random.Random(1), length)

    assert length <= len(text) <= length + LONGEST_PART


@pytest.mark.parametrize("make", [handbook, question])
def test_a_seed_makes_one_text_and_another_seed_another(make: MakeText) -> None:
    texts = [make(random.Random(seed), 300) for seed in (1, 1, 2)]

    assert texts[0] == texts[1]
    assert texts[0][:24] != texts[2][:24]


async def test_a_ruler_tells_the_template_from_the_text() -> None:
    fake = FakeOpenAI()
    target = Target("http://fake/v1", Secret(b"key"), "fake")
    async with await Service.open(
        target, connections=1, clock=fake.clock, transport=fake.transport
    ) as service:
        ruler = await Ruler.measure(service, random.Random(1))

    assert ruler.template_tokens == pytest.approx(TEMPLATE_TOKENS, abs=1)
    assert ruler.characters(2000) == pytest.approx(8000, rel=0.03)
    assert ruler.characters(-5) == 0
    assert {body["cache"] for body in fake.bodies} == {"off"}
