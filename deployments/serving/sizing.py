"""How much of the machine each engine gets: threads, logical CPUs, memory for its pool.

Pure arithmetic on settings and what the machine has; measures nothing itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deployments.settings import ModelSettings, Settings

DEFAULT_POOL_FRACTION = 0.5
"""Of the free memory, shared by all engines, when the settings give no pool size."""
GATEWAY_CPUS = 1
ENGINE_CPUS = 1


def num_threads(model: ModelSettings, settings: Settings, num_cores: int) -> int:
    """CPU threads of one engine of ``model``."""
    return model.threads or max(1, num_cores // settings.num_engines)


def num_cpus(settings: Settings) -> int:
    """Logical CPUs of the cluster, so that every actor fits whatever the machine has."""
    return settings.ray.num_cpus or settings.num_engines * ENGINE_CPUS + GATEWAY_CPUS


def pool_share(settings: Settings) -> float:
    """One engine's part of the free memory, for the engines whose pool has no size set."""
    return DEFAULT_POOL_FRACTION / settings.num_engines


def pool_blocks(
    model: ModelSettings, *, bytes_per_block: int, free_bytes: int, share: float, min_blocks: int
) -> int:
    """Blocks of one engine's pool.

    ``min_blocks`` hold one sequence of the model's full length: what memory alone decides is never
    less, and never more than 32 such sequences need to find their prefixes again.
    """
    if model.kv_blocks is not None:
        return model.kv_blocks
    if model.kv_bytes is not None:
        return max(1, model.kv_bytes // bytes_per_block)
    return min(max(int(free_bytes * share) // bytes_per_block, min_blocks), 32 * min_blocks)
