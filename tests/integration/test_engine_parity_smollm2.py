"""The demo model answers twenty-four fixed prompts as ``model.generate`` does, token by token."""

# ruff: noqa: RUF001
# Full-width punctuation belongs to Chinese prompts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# transformers is only partly typed.

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from transformers import AutoTokenizer

from deployments.demo_model import demo_model_folder
from tests.support.parity import ModelEngine, Reference

if TYPE_CHECKING:
    from tests.support.engines import Harness

pytestmark = pytest.mark.smollm2

MAX_TOKENS = 18
LONG_ANSWER = 40
SYSTEM = "You are a careful assistant. " + " ".join(
    f"Rule {i}: answer question {i} in one short sentence." for i in range(1, 12)
)
CHATS = (
    (None, "What is the capital of France?"),
    (None, "Write a haiku about the sea."),
    (None, "List three prime numbers."),
    (None, "用一句话介绍北京。"),
    (None, "水的化学式是什么？"),
    (None, "What does 🎉 mean? Answer with emoji 🙂🚀."),
    ("", "Say hello."),
    ("", "What is 12 times 12?"),
    (SYSTEM, "Who wrote Hamlet?"),
    (SYSTEM, "Who painted the Mona Lisa?"),
    (SYSTEM, "What is the boiling point of water?"),
    ("You speak like a pirate.", "Where is the treasure?"),
)
TEXTS = (
    "def fibonacci(n):\n    ",
    "SELECT name, count(*) FROM users WHERE",
    "#include <stdio.h>\n\nint main(void) {\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self",
    "The quick brown fox",
    "Once upon a time, in a village by the sea,",
    "从前有一座山，山里有一座庙，",
    "👩‍👩‍👧‍👦 and 🏳️‍🌈 are",
    "1, 1, 2, 3, 5, 8,",
    "Ελληνικά και русский и العربية",
)


class Case:
    def __init__(self) -> None:
        folder = demo_model_folder()
        if not folder.is_dir():
            pytest.skip("the demo model is not here: `make model` fetches it")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        chats = [
            tokenizer.apply_chat_template(
                [
                    *([{"role": "system", "content": system}] if system is not None else []),
                    {"role": "user", "content": user},
                ],
                add_generation_prompt=True,
                tokenize=False,
            )
            for system, user in CHATS
        ]
        texts = [*chats, *TEXTS]
        self.prompts: list[list[int]] = [tokenizer.encode(text) for text in texts]
        self.prompts += [[tokenizer.bos_token_id], self.prompts[8] * 2]
        self.engine = ModelEngine(folder, num_blocks=512)
        self.reference = Reference(folder)
        self._expected: dict[int, list[int]] = {}

    def expected(self, i: int) -> list[int]:
        if i not in self._expected:
            self._expected[i] = self.reference.greedy(self.prompts[i], MAX_TOKENS)
        return self._expected[i]

    def check(self, harness: Harness, batch_size: int) -> None:
        """Collects every mismatch with its logit gap before it fails."""
        mismatches: list[str] = []
        for start in range(0, len(self.prompts), batch_size):
            prompts = self.prompts[start : start + batch_size]
            answers = self.engine.answers(harness, prompts, MAX_TOKENS)
            for i, answer in enumerate(answers, start):
                got = answer.token_ids()
                found = self.reference.compare(self.prompts[i], self.expected(i), got)
                mismatches += [f"prompt {i}: {found}"] if found else []
        assert not mismatches, "\n".join(mismatches)


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


def test_the_prompts_are_what_they_should_be(case: Case) -> None:
    assert len(case.prompts) >= 20
    assert min(map(len, case.prompts)) == 1
    assert max(map(len, case.prompts)) > 256


def test_cold_and_reused_one_by_one(case: Case) -> None:
    harness = case.engine.harness()
    case.check(harness, batch_size=1)
    case.check(harness, batch_size=1)
    assert harness.core.counters.cached_tokens > harness.core.counters.prompt_tokens / 3


def test_in_batches_of_sixteen(case: Case) -> None:
    case.check(case.engine.harness(max_num_seqs=16), batch_size=16)


def test_in_chunks_of_thirty_two(case: Case) -> None:
    harness = case.engine.harness(max_step_tokens=32, max_num_seqs=16)
    case.check(harness, batch_size=16)


def test_preempted(case: Case) -> None:
    """Answers that outgrow the pool, so that most are computed in several attempts."""
    harness = case.engine.harness(num_blocks=26, max_num_seqs=16)
    prompts = case.prompts[len(CHATS) : len(CHATS) + len(TEXTS)]
    answers = case.engine.answers(harness, prompts, LONG_ANSWER)
    for prompt, answer in zip(prompts, answers, strict=True):
        expected = case.reference.greedy(prompt, LONG_ANSWER)
        assert case.reference.compare(prompt, expected, answer.token_ids()) == ""
    assert harness.core.counters.num_preemptions > 0
