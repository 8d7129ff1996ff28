"""Puts an engine together: source → model → pool → runner → engine, warmed.

Brings torch along: only an engine's process may import it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
from transformers import TokenizersBackend

from deployments.serving.sizing import pool_blocks
from deployments.serving.sources import model_source
from freehold.engine.batch import StepBatch, StepRow
from freehold.engine.config import EngineConfig
from freehold.engine.engine import LocalEngine
from freehold.engine.model.greedy import greedy_argmax
from freehold.engine.model.load import free_device_bytes, load_model
from freehold.engine.model.runner import ModelRunner
from freehold.errors import UnsupportedModel

if TYPE_CHECKING:
    from deployments.settings import ModelSettings
    from freehold.engine.model.load import LoadedModel


def build_engine(settings: ModelSettings, *, num_threads: int, pool_share: float) -> LocalEngine:
    """Load everything that ``settings`` names; the engine is running when this returns.

    ``pool_share`` is this engine's part of the free memory when the settings give no pool size.
    """
    loaded = load_model(
        model_source(settings),
        dtype=settings.dtype,
        device=settings.device,
        block_size=settings.block_size,
        max_len=settings.max_model_len,
    )
    gpu_bytes = free_device_bytes(loaded.device)
    num_blocks = pool_blocks(
        settings,
        bytes_per_block=loaded.kv_bytes_per_block,
        free_bytes=psutil.virtual_memory().available if gpu_bytes is None else gpu_bytes,
        share=pool_share,
        per_sequence=-(-loaded.max_model_len // loaded.block_size),
        on_gpu=gpu_bytes is not None,
    )
    runner = ModelRunner(
        loaded,
        num_blocks,
        attention_backend=settings.attention_backend,
        num_threads=num_threads,
    )
    _warm(runner, settings.block_size)
    card = runner.card(settings.name)
    # One sequence cannot be longer than the pool: clients must see the smaller limit.
    longest = min(card.max_model_len, num_blocks * card.block_size)
    return LocalEngine(
        runner,
        _fast_tokenizer(loaded),
        _config(settings, num_blocks),
        replace(card, max_model_len=longest),
        best_token=greedy_argmax,
    )


def _warm(runner: ModelRunner, block_size: int) -> None:
    """Run each kernel once, on a block that nobody has yet: the first request need not wait."""
    prompt = StepRow(range(block_size - 1), 0, [0], is_prompt=True, num_logits=1)
    decode = StepRow([0], block_size - 1, [0], is_prompt=False, num_logits=1)
    for row in (prompt, decode):
        runner.execute(StepBatch([row]))


def _fast_tokenizer(loaded: LoadedModel) -> TokenizersBackend:
    if not isinstance(loaded.tokenizer, TokenizersBackend):
        raise UnsupportedModel(loaded.architecture, "it has no fast tokenizer (tokenizer.json)")
    return loaded.tokenizer


def _config(settings: ModelSettings, num_blocks: int) -> EngineConfig:
    return EngineConfig(
        num_blocks=num_blocks,
        block_size=settings.block_size,
        max_num_seqs=settings.max_num_seqs,
        max_step_tokens=settings.max_step_tokens,
        max_step_ms=settings.max_step_ms,
        max_waiting=settings.max_waiting,
    )
