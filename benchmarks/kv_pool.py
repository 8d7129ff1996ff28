"""What the KV cache's bookkeeping costs per block: `python benchmarks/kv_pool.py [--json FILE]`.

Pure Python, no model. One cache of many blocks and accounts goes from empty to full and on under
constant eviction; each figure is the median over rounds of one prompt per account.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from freehold.kv.cache import KVCache
from freehold.kv.keys import Domain, ModelIdentity, block_keys
from freehold.protocol import (
    AccountId,
    AccountPolicy,
    EpochId,
    GenerateRequest,
    Owner,
    RequestId,
    SamplingParams,
)
from freehold.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK_SIZE = 16
BLOCKS_PER_PROMPT = 64
NUM_DECODED = 64


@dataclass(frozen=True, slots=True)
class Figure:
    """Median microseconds of one operation, per block or token as ``unit`` says."""

    operation: str
    unit: str
    microseconds: float


class Workload:
    """Prompts of every account in turn; each is as long as the others and shares nothing."""

    def __init__(self, num_blocks: int, num_accounts: int) -> None:
        self.cache = KVCache(num_blocks, BLOCK_SIZE)
        self._domains = [_domain(number) for number in range(num_accounts)]
        # Half of the pool is guaranteed, so that every eviction has floors to respect.
        self._policy = AccountPolicy(version=1, floor_blocks=num_blocks // num_accounts // 2)
        self._next = 0

    def request(self) -> GenerateRequest:
        number = self._next
        self._next += 1
        domain = self._domains[number % len(self._domains)]
        start = number * 7919
        tokens = range(start, start + BLOCKS_PER_PROMPT * BLOCK_SIZE)
        chain = block_keys(tokens, block_size=BLOCK_SIZE, model=ModelIdentity("bench"), tail=domain)
        return GenerateRequest(
            request_id=RequestId(f"bench-{number}"),
            model="bench",
            fingerprint="bench",
            token_ids=tuple(tokens),
            block_keys=chain.block_keys,
            next_parent=chain.next_parent,
            tail=chain.tail,
            sampling=SamplingParams(max_tokens=NUM_DECODED),
            policies={domain.owner.account_id: self._policy},
        )

    def prompt(self, request: GenerateRequest) -> None:
        """Compute a prompt that nobody has and end."""
        table = self.cache.open(request)
        num_tokens = len(request.token_ids)
        self.cache.attach(table, num_tokens - 1)
        if not self.cache.allocate(table, num_tokens):
            message = f"a pool of {self.cache.num_free} free blocks is too small"
            raise SystemExit(message)
        self.cache.publish(table, request.token_ids, num_tokens)
        self.cache.free(table)

    def hit(self, request: GenerateRequest) -> None:
        """Find a cached prompt whole and end."""
        table = self.cache.open(request)
        self.cache.attach(table, len(request.token_ids))
        self.cache.free(table)

    def decode(self, request: GenerateRequest) -> None:
        """Tokens one by one behind a cached prompt; finding that prompt is included."""
        table = self.cache.open(request)
        tokens = list(request.token_ids)
        self.cache.attach(table, len(tokens))
        for token in range(NUM_DECODED):
            tokens.append(token)
            self.cache.allocate(table, len(tokens))
            self.cache.publish(table, tokens, len(tokens))
        self.cache.free(table)

    def purge(self, request: GenerateRequest) -> None:
        """Drop all that one account has cached."""
        self.cache.purge(request.tail.account_id, None)


def measure(num_blocks: int, num_accounts: int, rounds: int) -> list[Figure]:
    work = Workload(num_blocks, num_accounts)
    num_fitting = num_blocks // BLOCKS_PER_PROMPT

    def timed(
        operation: str,
        run: Callable[[GenerateRequest], None],
        requests: list[GenerateRequest],
        unit: str,
        count: int,
    ) -> Figure:
        print(f"  {operation} …", file=sys.stderr)
        return Figure(operation, unit, _median_us(run, requests) / count)

    cold = [work.request() for _ in range(min(rounds, num_fitting // 2))]
    figures = [timed("prompt, empty pool", work.prompt, cold, "block", BLOCKS_PER_PROMPT)]
    for _ in range(num_fitting):
        work.prompt(work.request())
    fresh = [work.request() for _ in range(rounds)]
    recent = fresh[-min(rounds, num_fitting // 4) :]
    return [
        *figures,
        timed("prompt, full pool", work.prompt, fresh, "block", BLOCKS_PER_PROMPT),
        timed("hit", work.hit, recent, "block", BLOCKS_PER_PROMPT),
        timed("decode, full pool", work.decode, recent, "token", NUM_DECODED),
        timed("purge", work.purge, recent[:20], "account", 1),
    ]


def _median_us(run: Callable[[GenerateRequest], None], requests: list[GenerateRequest]) -> float:
    times: list[float] = []
    for request in requests:
        start = perf_counter()
        run(request)
        times.append(perf_counter() - start)
    return median(times) * 1e6


def _domain(number: int) -> Domain:
    salt = hashlib.sha256(str(number).encode()).digest()
    return Domain(Owner(AccountId(f"tn_{number}"), EpochId("e1")), Secret(salt))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--accounts", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=400, help="prompts measured per operation")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as well")
    arguments = parser.parse_args()
    figures = measure(arguments.blocks, arguments.accounts, arguments.rounds)
    print(f"{arguments.blocks} blocks, {arguments.accounts} accounts, medians")
    for figure in figures:
        print(f"{figure.operation:<20} {figure.microseconds:>10.2f} µs per {figure.unit}")
    if arguments.json:
        document = {
            "blocks": arguments.blocks,
            "accounts": arguments.accounts,
            "microseconds": {figure.operation: figure.microseconds for figure in figures},
        }
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
