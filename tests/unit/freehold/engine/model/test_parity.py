"""Greedy tokens of every family equal ``model.generate``'s, however the work is cut."""
# transformers is only partly typed:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoModelForCausalLM

from freehold.engine.model.load import load_model
from freehold.engine.model.runner import ModelRunner
from freehold.engine.model.source import LocalFolder
from tests.support.naive_driver import NaiveDriver, Run
from tests.support.tiny_models import FAMILIES, make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from freehold.engine.attention.select import BackendName
    from freehold.engine.model.linears import LinearsName

NUM_NEW = 8
NUM_BLOCKS = 256
BLOCK_SIZE = 16
LENGTHS = (1, 16, 33, 100, 2, 15, 17, 31, 32, 47, 64, 65, 70, 90, 5, 48)
"""Sixteen prompts: around blocks, tiles of 64 and windows, and longer than a chunk of 32."""
NUM_SINGLE = 4
"""So many of them also run alone."""

KERNELS: tuple[tuple[BackendName, LinearsName], ...] = (("cpu", "packed"), ("torch", "torch"))


@dataclass(frozen=True)
class Case:
    folder: Path
    prompts: Sequence[Sequence[int]]
    answers: Sequence[Sequence[int]]

    @property
    def singles(self) -> list[tuple[Sequence[int], Sequence[int]]]:
        return list(zip(self.prompts, self.answers, strict=True))[:NUM_SINGLE]


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family: str = request.param
    folder = make_tiny_model(tmp_path_factory.mktemp(family), family)
    rng = random.Random(family)
    prompts = [[rng.randrange(3, 320) for _ in range(length)] for length in LENGTHS]
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    answers = [_generate(model, prompt) for prompt in prompts]
    return Case(folder, prompts, answers)


def _generate(model: torch.nn.Module, prompt: Sequence[int]) -> list[int]:
    output: torch.Tensor = model.generate(  # type: ignore[operator]  # torch's __getattr__
        torch.tensor([prompt]), max_new_tokens=NUM_NEW, do_sample=False, eos_token_id=None
    )
    return output[0, len(prompt) :].tolist()


@pytest.fixture(scope="module", params=KERNELS, ids=lambda kernels: kernels[0])
def driver(request: pytest.FixtureRequest, case: Case) -> NaiveDriver:
    backend, linears = request.param
    loaded = load_model(LocalFolder(case.folder), dtype="float32", block_size=BLOCK_SIZE)
    runner = ModelRunner(
        loaded, 4 * NUM_BLOCKS, attention_backend=backend, linears=linears, num_threads=1
    )
    return NaiveDriver(runner, 4 * NUM_BLOCKS, BLOCK_SIZE)


@pytest.mark.parametrize("chunk", [None, 32], ids=["whole", "chunk32"])
def test_one_by_one(case: Case, driver: NaiveDriver, chunk: int | None) -> None:
    for prompt, expected in case.singles:
        run = driver.open(prompt, NUM_NEW)
        driver.prefill([run], chunk)
        driver.decode([run], NUM_NEW)
        check(run, expected)


@pytest.mark.parametrize("chunk", [None, 32], ids=["whole", "chunk32"])
def test_batch_of_sixteen(case: Case, driver: NaiveDriver, chunk: int | None) -> None:
    runs = [driver.open(prompt, NUM_NEW) for prompt in case.prompts]
    driver.prefill(runs, chunk)
    driver.decode(runs, NUM_NEW)
    for run, expected in zip(runs, case.answers, strict=True):
        check(run, expected)


def test_reused_prefix(case: Case, driver: NaiveDriver) -> None:
    """A second sequence takes the first one's blocks, those of its answer included."""
    for prompt, expected in case.singles:
        first = driver.open(prompt, NUM_NEW)
        driver.prefill([first])
        driver.decode([first], NUM_NEW)
        again = driver.open(prompt, NUM_NEW, shared=first)
        assert again.num_computed == (len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE
        driver.prefill([again])
        driver.decode([again], NUM_NEW)
        check(again, expected)
        # As after a preemption: prompt and a part of the answer are computed anew as a prompt.
        resumed = driver.open([*prompt, *expected[:3]], NUM_NEW, shared=first)
        driver.prefill([resumed])
        driver.decode([resumed], NUM_NEW - 3)
        check(resumed, expected[3:])


def check(run: Run, expected: Sequence[int]) -> None:
    """Token by token; a mismatch shows by how much the expected token lost."""
    for i, (got, wanted) in enumerate(zip(run.answer, expected, strict=True)):
        gap = float(run.logits[i][got] - run.logits[i][wanted])
        assert got == wanted, f"token {i} of {len(run.prompt)}-token prompt: logit gap {gap:.2e}"
