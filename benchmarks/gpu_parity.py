"""Checks and times the CUDA attention backends; needs a GPU, takes at most five minutes.

    python benchmarks/gpu_parity.py [--model FOLDER]

For every backend that runs here: its logits against float32 on the CPU (the gate: no further off
than Hugging Face's own bfloat16 is, times two), cold, in chunks and as a decode step; and the
rates of prefill and decode. Exits with 1 if a backend fails the gate.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from deployments.demo_model import ensure_demo_model
from freehold.engine.batch import StepBatch, StepRow
from freehold.engine.model.load import load_model
from freehold.engine.model.runner import ModelRunner
from freehold.engine.model.source import LocalFolder
from freehold.engine.native.library import KernelUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freehold.engine.attention.select import BackendName

BACKENDS: tuple[BackendName, ...] = ("flash", "flashinfer", "torch")
NUM_BLOCKS = 1024
PROMPT_TOKENS = 500
BATCH = 32
TABLE_BLOCKS = 40
LENIENCE = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", type=Path, help="a model folder; the demo model if not given")
    folder: Path = parser.parse_args().model or ensure_demo_model()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing checked", file=sys.stderr)
        return 1
    rng = random.Random(3)  # noqa: S311  # no secret
    prompt = [rng.randrange(1000, 40_000) for _ in range(PROMPT_TOKENS)]
    exact = _logits(_cpu_runner(folder), prompt, PROMPT_TOKENS)
    allowed = LENIENCE * _hugging_face_error(folder, prompt, exact)
    print(f"allowed error of a logit (mean): {allowed:.4f}")
    results = [_check(name, folder, prompt, exact, allowed) for name in BACKENDS]
    return 0 if all(results) else 1


def _cpu_runner(folder: Path) -> ModelRunner:
    return ModelRunner(load_model(LocalFolder(folder), dtype="float32", device="cpu"), NUM_BLOCKS)


def _hugging_face_error(folder: Path, prompt: Sequence[int], exact: torch.Tensor) -> float:
    model = load_model(LocalFolder(folder), dtype="bfloat16", device="cuda").model
    with torch.inference_mode():
        logits = model(torch.tensor([list(prompt)], device="cuda")).logits[0, -1:]
    return _error(logits, exact)


def _check(
    name: BackendName, folder: Path, prompt: Sequence[int], exact: torch.Tensor, allowed: float
) -> bool:
    """True if the backend passes, or is not there to be checked."""
    loaded = load_model(LocalFolder(folder), dtype="bfloat16", device="cuda")
    try:
        runner = ModelRunner(loaded, NUM_BLOCKS, attention_backend=name)
    except KernelUnavailable as error:
        print(f"{name:<11} skipped: {error.reason}")
        return True
    errors = {
        "cold": _error(_logits(runner, prompt, PROMPT_TOKENS), exact),
        "chunked": _error(_logits(runner, prompt, 64), exact),
        "decode": _error(_last_by_decode(runner, prompt), exact),
    }
    passed = all(error <= allowed for error in errors.values())
    shown = " ".join(f"{way} {error:.4f}" for way, error in errors.items())
    prefill, decode = _rates(runner, prompt)
    verdict = "ok" if passed else "FAILED"
    print(f"{name:<11} {verdict}: {shown}; prefill {prefill:.0f} tok/s, decode {decode:.0f} tok/s")
    return passed


def _logits(runner: ModelRunner, prompt: Sequence[int], chunk: int) -> torch.Tensor:
    table = range(1, 1 + TABLE_BLOCKS)
    logits = torch.empty(0)
    for start in range(0, len(prompt), chunk):
        row = StepRow(prompt[start : start + chunk], start, table, True, 1)
        logits = runner.execute(StepBatch([row]))
    return logits


def _last_by_decode(runner: ModelRunner, prompt: Sequence[int]) -> torch.Tensor:
    _logits(runner, prompt[:-1], len(prompt))
    row = StepRow(prompt[-1:], len(prompt) - 1, range(1, 1 + TABLE_BLOCKS), False, 1)
    return runner.execute(StepBatch([row]))


def _rates(runner: ModelRunner, prompt: Sequence[int]) -> tuple[float, float]:
    prefill = StepBatch([StepRow(prompt, 0, range(TABLE_BLOCKS), True, 1)])
    tables = [range(i, i + TABLE_BLOCKS) for i in range(BATCH)]
    decode = StepBatch([StepRow([7], len(prompt), table, False, 1) for table in tables])
    return len(prompt) / _step_s(runner, prefill), BATCH / _step_s(runner, decode)


def _step_s(runner: ModelRunner, batch: StepBatch) -> float:
    runner.execute(batch)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(10):
        runner.execute(batch)
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / 10


def _error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.float().cpu() - exact.cpu()).abs().mean())


if __name__ == "__main__":
    sys.exit(main())
