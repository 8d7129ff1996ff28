"""The built-in engine and ``model.generate`` on the same weights, side by side."""

# transformers is only partly typed:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import AutoModelForCausalLM

from freehold.engine.config import EngineConfig
from freehold.engine.engine import LocalEngine
from freehold.engine.model.load import load_model
from freehold.engine.model.runner import ModelRunner
from freehold.engine.model.source import LocalFolder
from tests.support.engines import Answer, Harness, make_request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from freehold.engine.vocabulary import Tokenizer
    from freehold.protocol import GenerateRequest

MODEL = "under-test"


class Reference:
    """Hugging Face's own greedy answer in float32, one prompt at a time."""

    def __init__(self, folder: Path) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model.eval()

    def greedy(self, prompt: Sequence[int], max_tokens: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        output = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            pad_token_id=0,
        )
        return cast("list[int]", output[0, len(prompt) :].tolist())

    @torch.no_grad()
    def logprobs(self, tokens: Sequence[int]) -> torch.Tensor:
        """``[vocab_size]`` of the token after ``tokens``."""
        logits: torch.Tensor = self._model(torch.tensor([list(tokens)])).logits
        return logits[0, -1].log_softmax(dim=-1)

    def compare(self, prompt: Sequence[int], expected: list[int], got: list[int]) -> str:
        """Empty when equal, else where the two part and by what logit gap."""
        if expected == got:
            return ""
        pairs = enumerate(zip(expected, got, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(expected), len(got)))
        if at == min(len(expected), len(got)):
            return f"lengths differ: {len(expected)} and {len(got)}"
        logprobs = self.logprobs([*prompt, *expected[:at]])
        gap = float(logprobs[expected[at]] - logprobs[got[at]])
        return f"token {at}: expected {expected[at]}, got {got[at]}, logit gap {gap:.2e}"


class ModelEngine:
    """One loaded model; ``harness`` gives it a fresh core, with other limits if wanted."""

    def __init__(self, folder: Path, num_blocks: int = 256) -> None:
        loaded = load_model(LocalFolder(folder), dtype="float32", device="cpu")
        # One thread: models this small gain nothing from more, and machines that test are busy.
        self._runner = ModelRunner(loaded, num_blocks, num_threads=1)
        self._num_blocks = num_blocks
        self.tokenizer = cast("Tokenizer", loaded.tokenizer)
        self.card = self._runner.card(MODEL)

    def harness(self, **limits: Any) -> Harness:
        config = EngineConfig(
            **({"num_blocks": self._num_blocks, "block_size": self.card.block_size} | limits)
        )
        return Harness(self._runner, self.tokenizer, config, self.card)

    def local(self) -> LocalEngine:
        """A started engine; the caller closes it."""
        config = EngineConfig(num_blocks=self._num_blocks, block_size=self.card.block_size)
        return LocalEngine(self._runner, self.tokenizer, config, self.card)

    def request(self, prompt: Sequence[int], max_tokens: int, **sampling: Any) -> GenerateRequest:
        return make_request(
            prompt,
            model=MODEL,
            fingerprint=self.card.fingerprint,
            block_size=self.card.block_size,
            max_tokens=max_tokens,
            **sampling,
        )

    def answers(
        self, harness: Harness, prompts: Sequence[Sequence[int]], max_tokens: int
    ) -> list[Answer]:
        """All prompts at once."""
        answers = [harness.add(self.request(prompt, max_tokens)) for prompt in prompts]
        harness.run()
        return answers
