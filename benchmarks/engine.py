"""The built-in engine's speed, and with ``--vllm-python PATH`` vLLM's on the same workload.

    python -m benchmarks.engine [--model FOLDER] [--vllm-python PATH] [--json FILE]

Each engine runs in a process of its own (in-process there, all cores, bfloat16, greedy); one works
while the other sleeps, in turns, so that a machine that slows down slows both. Medians. Memory
speed drifts by tens of per cent on shared machines: quote the ratios, not the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch

from benchmarks.engine_workload import BATCHES, CASES, CLOCKS, PROMPT_TOKENS, order_line
from deployments.demo_model import ensure_demo_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.engine_workload import Case

ROOT = Path(__file__).resolve().parent.parent


class Worker:
    """An engine in a process of its own, which answers one order at a time."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(  # noqa: S603  # our own script, the user's interpreter
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError  # cannot be: both are pipes
        self._orders, self._answers = self._process.stdin, self._process.stdout
        self._read()

    def measure(self, case: Case, seed: int, clock: str) -> float:
        self._orders.write(order_line(case, seed, clock))
        self._orders.flush()
        return float(self._read())

    def close(self) -> None:
        self._process.communicate()

    def _read(self) -> str:
        line = self._answers.readline()
        if not line:
            message = f"{self.name} ended early with code {self._process.wait()}"
            raise SystemExit(message)
        return line.strip()


def main() -> None:
    args = _arguments()
    folder: Path = args.model or ensure_demo_model()
    workers = _start(folder, args)
    samples: dict[str, dict[str, list[float]]] = {
        worker.name: {case.name: [] for case in CASES} for worker in workers
    }
    # Round 0 warms up: compiled graphs, allocators, thread pools.
    for number in range(args.rounds + 1):
        for case in CASES:
            for worker in workers:
                value = worker.measure(case, number, args.clock)
                if number:
                    samples[worker.name][case.name].append(value)
        _progress(f"round {number} of {args.rounds} done" if number else "warm-up done")
    for worker in workers:
        worker.close()

    results = {name: _figures(of_engine) for name, of_engine in samples.items()}
    _print_table(results)
    report = {
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "cpu": dict(torch.cpu.get_capabilities())["cpu_name"],
        },
        "model": folder.name,
        "dtype": "bfloat16",
        "rounds": args.rounds,
        "clock": args.clock,
        "results": results,
        "samples": samples,
    }
    if "vllm" in results:
        report["ratios"] = _ratios(results["freehold"], results["vllm"])
        _print_ratios(report["ratios"])
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", type=Path, help="a model folder; the demo model if not given")
    parser.add_argument("--rounds", type=int, default=5, help="medians are taken over so many")
    parser.add_argument("--vllm-python", type=Path, help="the interpreter of vLLM's environment")
    parser.add_argument("--vllm-eager", action="store_true", help="vLLM without compilation")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: see the workload")
    parser.add_argument("--json", type=Path, help="write the results there too")
    return parser.parse_args()


def _start(folder: Path, args: argparse.Namespace) -> list[Worker]:
    _progress("loading the built-in engine")
    ours = [sys.executable, "-m", "benchmarks.engine_freehold", str(folder)]
    workers = [Worker("freehold", ours)]
    if args.vllm_python:
        _progress("loading vLLM (compiling takes minutes the first time)")
        script = ROOT / "benchmarks" / "engine_vllm.py"
        theirs = [str(args.vllm_python), str(script), str(folder)]
        workers.append(Worker("vllm", [*theirs, *["--eager"] * args.vllm_eager]))
    return workers


def _figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    medians = {name: median(values) for name, values in samples.items()}
    return {"prefill": PROMPT_TOKENS / medians["ttft_cold_s"], **medians}


def _ratios(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """Ours over theirs; ``warm_ttft`` is a time, so small is good there."""
    names = {"prefill": "prefill", "warm_ttft": "ttft_warm_s"}
    names |= {f"decode_{batch}": f"decode_{batch}" for batch in BATCHES}
    return {ratio: ours[name] / theirs[name] for ratio, name in names.items()}


def _print_table(results: Mapping[str, Mapping[str, float]]) -> None:
    decode = "".join(f"{f'batch {batch}':>10}" for batch in BATCHES)
    print(f"\n{'engine':<10}{'prefill':>10}{'TTFT cold':>12}{'TTFT warm':>12}{decode}")
    print(f"{'':<10}{'tok/s':>10}{'s':>12}{'s':>12}{'decode tok/s':>{10 * len(BATCHES)}}")
    for name, figures in results.items():
        rates = "".join(f"{figures[f'decode_{batch}']:>10.1f}" for batch in BATCHES)
        print(
            f"{name:<10}{figures['prefill']:>10.0f}{figures['ttft_cold_s']:>12.3f}"
            f"{figures['ttft_warm_s']:>12.3f}{rates}"
        )


def _print_ratios(ratios: Mapping[str, float]) -> None:
    print("\nfreehold over vllm (warm_ttft is a time: small is good)")
    for name, value in ratios.items():
        print(f"  {name:<10}{value:>6.2f}")


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
