"""The engine benchmark's worker for the built-in engine: ``EngineCore``, stepped directly."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import structlog

from benchmarks.engine_workload import answer_orders, private_stdout
from freehold.engine.config import EngineConfig
from freehold.engine.core import EngineCore
from freehold.engine.model.greedy import greedy_argmax
from freehold.engine.model.load import DtypeName, load_model
from freehold.engine.model.runner import ModelRunner
from freehold.engine.model.source import LocalFolder
from freehold.engine.sampler import Sampler
from freehold.engine.vocabulary import Vocabulary
from freehold.kv.keys import Domain, ModelIdentity, block_keys
from freehold.protocol import (
    AccountId,
    EpochId,
    GenerateRequest,
    Owner,
    RequestId,
    SamplingParams,
)
from freehold.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freehold.engine.vocabulary import Tokenizer

NUM_BLOCKS = 2048
DOMAIN = Domain(Owner(AccountId("tn_bench"), EpochId("0" * 32)), Secret(bytes(32)))


class FreeholdStepper:
    """A ``Stepper``: requests carry keys as a gateway makes them, deltas are detokenized."""

    def __init__(self, folder: Path, dtype: DtypeName) -> None:
        loaded = load_model(LocalFolder(folder), dtype=dtype)
        runner = ModelRunner(loaded, NUM_BLOCKS, num_threads=len(os.sched_getaffinity(0)))
        self._card = runner.card("bench")
        self._core = EngineCore(
            runner,
            Vocabulary(cast("Tokenizer", loaded.tokenizer)),
            EngineConfig(num_blocks=NUM_BLOCKS, block_size=loaded.block_size),
            self._card,
            clock=time.perf_counter,
            entropy=lambda: 0,
            sampler=Sampler(greedy_argmax),
        )

    def add(self, request_id: str, token_ids: Sequence[int], max_tokens: int) -> None:
        chain = block_keys(
            token_ids,
            block_size=self._card.block_size,
            model=ModelIdentity(self._card.fingerprint),
            tail=DOMAIN,
        )
        request = GenerateRequest(
            request_id=RequestId(request_id),
            model=self._card.model,
            fingerprint=self._card.fingerprint,
            token_ids=tuple(token_ids),
            block_keys=chain.block_keys,
            next_parent=chain.next_parent,
            tail=chain.tail,
            sampling=SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True),
        )
        self._core.add(request, time.perf_counter())

    def step(self) -> Mapping[str, int]:
        output = self._core.step()
        if output.failure is not None:
            raise output.failure
        return {str(request_id): len(delta.token_ids) for request_id, delta in output.deltas}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="bfloat16")
    args = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory())
    answers = private_stdout()
    answer_orders(FreeholdStepper(args.folder, args.dtype), answers)


if __name__ == "__main__":
    main()
