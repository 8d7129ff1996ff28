"""The whole engine over a real, tiny model: threads, streams, text and log-probabilities."""

# pyright: reportUnknownMemberType=false
# transformers and Tensor.tolist are only partly typed.

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from freehold.protocol import FinishReason
from tests.support.parity import ModelEngine, Reference
from tests.support.tiny_models import make_tiny_model, make_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from freehold.engine.engine import LocalEngine
    from freehold.protocol import Delta, GenerateRequest

PROMPT = tuple(random.Random(2).randrange(3, 300) for _ in range(37))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> ModelEngine:
    return ModelEngine(folder)


@pytest.fixture
def engine(model: ModelEngine) -> Iterator[LocalEngine]:
    engine = model.local()
    yield engine
    engine.close()


async def collect(engine: LocalEngine, asked: GenerateRequest) -> list[Delta]:
    return [delta async for delta in engine.generate(asked)]


async def test_streamed_text_is_the_tokenizers(model: ModelEngine, engine: LocalEngine) -> None:
    deltas = await collect(engine, model.request(PROMPT, 60, temperature=1.0, seed=3))
    tokens = [token for delta in deltas for token in delta.token_ids]
    assert len(tokens) > 10
    text = "".join(delta.text for delta in deltas)
    assert text == make_tokenizer().decode(tokens, skip_special_tokens=True)


async def test_choices_of_one_request(model: ModelEngine, engine: LocalEngine) -> None:
    deltas = await collect(engine, model.request(PROMPT, 12, n=3, ignore_eos=True))
    answers = [[t for d in deltas if d.index == i for t in d.token_ids] for i in range(3)]
    assert len(answers[0]) == 12
    assert answers[0] == answers[1] == answers[2]


async def test_logprobs_are_the_references(
    folder: Path, model: ModelEngine, engine: LocalEngine
) -> None:
    reference = Reference(folder)
    deltas = await collect(engine, model.request(PROMPT, 6, logprobs=3, temperature=0.0))
    positions = [position for delta in deltas for position in delta.logprobs]
    tokens = list(PROMPT)
    for position in positions:
        expected = reference.logprobs(tokens)
        for token in (position.chosen, *position.top):
            assert token.logprob == pytest.approx(float(expected[token.token_id]), abs=1e-4)
        assert [t.token_id for t in position.top] == expected.topk(3).indices.tolist()
        tokens.append(position.chosen.token_id)
    assert len(positions) == 6


async def test_clients_that_leave_return_their_blocks(
    model: ModelEngine, engine: LocalEngine
) -> None:
    rng = random.Random(4)

    async def leave(length: int) -> None:
        asked = model.request(PROMPT[:length], 100, ignore_eos=True, n=rng.choice([1, 2]))
        async for _ in engine.generate(asked):
            if rng.random() < 0.3:
                return

    await asyncio.gather(*(leave(rng.randrange(1, 37)) for _ in range(24)))
    stays = await collect(engine, model.request(PROMPT, 5, ignore_eos=True))
    assert stays[-1].finish_reason is FinishReason.LENGTH
    engine.close()
    report = engine.report()
    assert report.num_running + report.num_waiting == 0
    assert report.active_blocks == 0
    assert report.free_blocks + report.cached_blocks == model.card.num_blocks
    assert report.prefill_tokens_per_s > 0
    assert report.decode_step_s > 0
