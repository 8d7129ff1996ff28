"""The engine benchmark's worker for vLLM on CPU; run by the interpreter that has vLLM installed.

vLLM as it comes (compiled), but in this process, on all cores, with blocks of 64 tokens where its
own default is 128: so that it, too, can find all 960 cached tokens.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.engine_workload import answer_orders, private_stdout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in sorted(os.sched_getaffinity(0))),
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


class VllmStepper:
    """A ``Stepper``."""

    def __init__(self, folder: Path, *, eager: bool, block_size: int) -> None:
        self._vllm: Any = importlib.import_module("vllm")
        llm = self._vllm.LLM(
            model=str(folder),
            dtype="bfloat16",
            max_model_len=2048,
            block_size=block_size,
            enable_prefix_caching=True,
            enforce_eager=eager,
        )
        self._engine = llm.llm_engine
        self._num_seen: dict[str, int] = {}
        # vLLM makes ids of its own unique; ours repeat from run to run.
        self._num_added = 0
        self._names: dict[str, str] = {}

    def add(self, request_id: str, token_ids: Sequence[int], max_tokens: int) -> None:
        self._num_added += 1
        unique = str(self._num_added)
        self._names[unique] = request_id
        params = self._vllm.SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        prompt = {"prompt_token_ids": list(token_ids)}
        self._engine.add_request(unique, prompt, params)

    def step(self) -> Mapping[str, int]:
        gained: dict[str, int] = {}
        for output in self._engine.step():
            total = len(output.outputs[0].token_ids)
            gained[self._names[output.request_id]] = total - self._num_seen.get(
                output.request_id, 0
            )
            self._num_seen[output.request_id] = total
        return gained


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--block-size", type=int, default=64)
    args = parser.parse_args()
    os.environ |= SETTINGS
    answers = private_stdout()
    answer_orders(VllmStepper(args.folder, eager=args.eager, block_size=args.block_size), answers)


if __name__ == "__main__":
    main()
