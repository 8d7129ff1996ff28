"""How much of the machine each engine gets: threads, logical CPUs, memory for its pool.

Pure arithmetic on settings and what the machine has; measures nothing itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deployments.settings import ModelSettings, Settings

CPU_POOL_FRACTION = 0.5
"""Of the machine's free memory, for all engines together, when the settings give no pool size."""
GPU_POOL_FRACTION = 0.8
"""Of a GPU's, for the one engine that has it; a step's activations need the rest."""
MAX_CPU_SEQUENCES = 32
GATEWAY_CPUS = 1
ENGINE_CPUS = 1


def num_threads(model: ModelSettings, settings: Settings, num_cores: int) -> int:
    """CPU threads of one engine of ``model``."""
    return model.threads or max(1, num_cores // settings.num_engines)


def num_cpus(settings: Settings) -> int:
    """Logical CPUs of the cluster, so that every actor fits whatever the machine has."""
    return settings.ray.num_cpus or settings.num_engines * ENGINE_CPUS + GATEWAY_CPUS


def pool_share(settings: Settings, *, on_gpu: bool) -> float:
    """One engine's part of the memory that is free once its weights are loaded."""
    return GPU_POOL_FRACTION if on_gpu else CPU_POOL_FRACTION / settings.num_engines


def pool_blocks(
    model: ModelSettings,
    *,
    bytes_per_block: int,
    free_bytes: int,
    share: float,
    per_sequence: int,
    on_gpu: bool,
) -> int:
    """Blocks of one engine's pool; ``per_sequence`` hold one of the model's full length.

    Where no size is set, memory decides, but at least one full sequence fits, and on a CPU (whose
    memory others need too) no more than ``MAX_CPU_SEQUENCES`` of them do.
    """
    if model.kv_blocks is not None:
        return model.kv_blocks
    if model.kv_bytes is not None:
        return max(1, model.kv_bytes // bytes_per_block)
    by_memory = max(int(free_bytes * share) // bytes_per_block, per_sequence)
    return by_memory if on_gpu else min(by_memory, MAX_CPU_SEQUENCES * per_sequence)
