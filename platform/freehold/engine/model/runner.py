"""Runs steps on one device: the scheduler's rows in, the logits that they asked for out.

Owns the KV pool's tensors. The Hugging Face model is used unmodified, on all rows flattened into
one sequence ``[1, T]`` with explicit positions; attention finds each row's keys in the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import structlog
import torch

from freehold.engine.attention.hook import PagedStep, install
from freehold.engine.attention.layout import make_layout, step_positions
from freehold.engine.attention.protocol import LayerPool
from freehold.engine.attention.select import choose_backend
from freehold.engine.model.fused import fuse
from freehold.engine.model.linears import replace_linears
from freehold.engine.model.rotary import fuse_rotary
from freehold.protocol import ModelCard

if TYPE_CHECKING:
    from freehold.engine.attention.select import BackendName
    from freehold.engine.batch import StepBatch
    from freehold.engine.model.linears import LinearsName
    from freehold.engine.model.load import LoadedModel


class ModelRunner:
    """A ``freehold.engine.batch.Executor``. Not thread-safe: one thread steps it."""

    def __init__(
        self,
        loaded: LoadedModel,
        num_blocks: int,
        *,
        attention_backend: BackendName = "auto",
        linears: LinearsName = "auto",
        num_threads: int | None = None,
    ) -> None:
        """Take over ``loaded``, whose model answers only through this runner from now on.

        ``num_threads`` is of torch, and so of the whole process; None leaves it as it is.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self._loaded = loaded
        self._num_blocks = num_blocks
        self._backend = choose_backend(
            attention_backend,
            dtype=loaded.dtype,
            device=loaded.device,
            has_softcap=loaded.shape.has_softcap,
        )
        install(loaded.model)
        linears_taken = replace_linears(loaded.model, linears)
        num_fused = 0
        if linears_taken == "packed":
            num_fused = fuse(loaded.model) + fuse_rotary(loaded.model)
        self._pools = _allocate(loaded, num_blocks)
        structlog.get_logger().info(
            "model_ready",
            architecture=loaded.architecture,
            dtype=loaded.dtype_name,
            device=str(loaded.device),
            attention_backend=self._backend.name,
            linears=linears_taken,
            fused_modules=num_fused,
            num_blocks=num_blocks,
            pool_bytes=num_blocks * loaded.kv_bytes_per_block,
            num_threads=torch.get_num_threads(),
        )

    @property
    def vocab_size(self) -> int:
        return self._loaded.vocab_size

    def card(self, model: str) -> ModelCard:
        """What a gateway must know; ``model`` is the name that requests use."""
        loaded = self._loaded
        return ModelCard(
            model=model,
            fingerprint=loaded.fingerprint,
            architecture=loaded.architecture,
            dtype=loaded.dtype_name,
            block_size=loaded.block_size,
            num_blocks=self._num_blocks,
            max_model_len=loaded.max_model_len,
            vocab_size=loaded.vocab_size,
            eos_token_ids=loaded.eos_token_ids,
            attention_backend=self._backend.name,
        )

    @torch.inference_mode()
    def execute(self, batch: StepBatch) -> torch.Tensor:
        """See ``Executor``: ``[sum of num_logits, vocab_size]`` in row order, the model's dtype."""
        device = self._loaded.device
        layout = make_layout(batch, self._loaded.block_size, device)
        token_ids = np.concatenate([np.asarray(row.token_ids, np.int64) for row in batch.rows])
        step = PagedStep(self._backend.plan(layout), self._pools)
        output = self._loaded.model(
            input_ids=torch.as_tensor(token_ids, device=device).unsqueeze(0),
            position_ids=torch.as_tensor(step_positions(batch), device=device).unsqueeze(0),
            use_cache=False,
            logits_to_keep=torch.as_tensor(_logit_positions(batch), device=device),
            paged_step=step,
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def _logit_positions(batch: StepBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where in the flattened step the rows' last ``num_logits`` tokens are."""
    end = 0
    ranges: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for row in batch.rows:
        end += len(row.token_ids)
        ranges.append(np.arange(end - row.num_logits, end))
    return np.concatenate(ranges)


def _allocate(loaded: LoadedModel, num_blocks: int) -> list[LayerPool]:
    """Not zeroed: nothing reads a slot that was not written."""
    shape = (num_blocks, loaded.block_size, loaded.shape.num_kv_heads, loaded.shape.head_dim)

    def make() -> torch.Tensor:
        return torch.empty(shape, dtype=loaded.dtype, device=loaded.device)

    return [LayerPool(make(), make()) for _ in range(loaded.shape.num_layers)]
