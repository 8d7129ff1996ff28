"""The engine benchmark's workload and its clock, the same for every engine that is measured.

Imports the standard library only, because another engine's interpreter runs it too. An engine is
whatever can take token ids and be stepped; it is measured from inside its own process.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PROMPT_TOKENS = 1024
CACHED_TOKENS = 960
DECODE_PROMPT_TOKENS = 128
DECODE_TOKENS = 64
BATCHES = (1, 8, 32)
TOKEN_IDS = range(1000, 40_000)


@dataclass(frozen=True)
class Case:
    """One measurement: ``kind`` is cold or warm (seconds to first token) or decode (tokens/s)."""

    name: str
    kind: str
    batch: int = 1


CASES = (
    Case("ttft_cold_s", "cold"),
    Case("ttft_warm_s", "warm"),
    *(Case(f"decode_{batch}", "decode", batch) for batch in BATCHES),
)


class Stepper(Protocol):
    """An engine in this process."""

    def add(self, request_id: str, token_ids: Sequence[int], max_tokens: int) -> None:
        """Queue a greedy request that ignores the end-of-sequence token."""
        ...

    def step(self) -> Mapping[str, int]:
        """Compute one step; how many output tokens each request gained in it."""
        ...


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""``cpu`` is for a machine that others use too; bind the benchmark to one core then, because the
threads of a team burn time while they wait for each other."""


def measure(engine: Stepper, case: Case, seed: int, clock: Callable[[], float]) -> float:
    """Run ``case`` on prompts that nobody has seen (another seed, other prompts)."""
    rng = random.Random(f"{case.name}/{seed}")  # noqa: S311  # no secret
    if case.kind == "decode":
        return _decode_rate(engine, rng, case.batch, clock)
    prefix = _tokens(rng, CACHED_TOKENS)
    tail = PROMPT_TOKENS - CACHED_TOKENS
    if case.kind == "warm":
        _first_token_s(engine, prefix + _tokens(rng, tail), clock)
    return _first_token_s(engine, prefix + _tokens(rng, tail), clock)


def _first_token_s(engine: Stepper, prompt: list[int], clock: Callable[[], float]) -> float:
    started = clock()
    engine.add("first", prompt, 1)
    while not engine.step().get("first"):
        pass
    return clock() - started


def _decode_rate(
    engine: Stepper, rng: random.Random, batch: int, clock: Callable[[], float]
) -> float:
    """Tokens a second over the steps in which all ``batch`` sequences decode, and nothing else."""
    prompts = {f"decode-{i}": _tokens(rng, DECODE_PROMPT_TOKENS) for i in range(batch)}
    # Cached prompts start within a few steps of each other, whatever the engine's chunking.
    _run(engine, prompts, 1)
    left = dict.fromkeys(prompts, DECODE_TOKENS)
    for request_id, prompt in prompts.items():
        engine.add(request_id, prompt, DECODE_TOKENS)
    while DECODE_TOKENS in left.values():
        _account(left, engine.step())
    before = sum(left.values())
    started = clock()
    while all(left.values()):
        _account(left, engine.step())
    elapsed = clock() - started
    rate = (before - sum(left.values())) / elapsed
    while any(left.values()):
        _account(left, engine.step())
    return rate


def _run(engine: Stepper, prompts: Mapping[str, Sequence[int]], max_tokens: int) -> None:
    left = dict.fromkeys(prompts, max_tokens)
    for request_id, prompt in prompts.items():
        engine.add(request_id, prompt, max_tokens)
    while any(left.values()):
        _account(left, engine.step())


def _account(left: dict[str, int], gained: Mapping[str, int]) -> None:
    for request_id, tokens in gained.items():
        left[request_id] -= tokens


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.choice(TOKEN_IDS) for _ in range(count)]


def answer_orders(engine: Stepper, answers: int) -> None:
    """A worker's life: a line of ``order_line`` in, its measurement out, until EOF."""
    with os.fdopen(answers, "w") as out:
        print("ready", file=out, flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            value = measure(engine, Case(**order["case"]), order["seed"], CLOCKS[order["clock"]])
            print(json.dumps(value), file=out, flush=True)


def order_line(case: Case, seed: int, clock: str) -> str:
    return json.dumps({"case": asdict(case), "seed": seed, "clock": clock}) + "\n"


def private_stdout() -> int:
    """A descriptor of the real standard output; from now on print() goes to standard error.

    Libraries write there as they like; an answer must not get lost between their lines.
    """
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers
