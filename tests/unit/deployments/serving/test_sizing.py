from __future__ import annotations

from pathlib import Path

import pytest

from deployments.serving import sizing
from deployments.settings import ModelSettings, RaySettings, Settings

GIB = 1 << 30


def model(
    *,
    replicas: int = 1,
    threads: int | None = None,
    kv_blocks: int | None = None,
    kv_bytes: int | None = None,
) -> ModelSettings:
    return ModelSettings(
        name="a",
        path=Path("a"),
        replicas=replicas,
        threads=threads,
        kv_blocks=kv_blocks,
        kv_bytes=kv_bytes,
    )


def blocks(of: ModelSettings, *, free_bytes: int = 8 * GIB, on_gpu: bool = False) -> int:
    return sizing.pool_blocks(
        of,
        bytes_per_block=1 << 20,
        free_bytes=free_bytes,
        share=0.25,
        per_sequence=128,
        on_gpu=on_gpu,
    )


@pytest.mark.parametrize(
    ("replicas", "num_cores", "threads"), [(1, 8, 8), (2, 8, 4), (3, 8, 2), (4, 2, 1)]
)
def test_engines_share_the_cores(replicas: int, num_cores: int, threads: int) -> None:
    one = model(replicas=replicas)

    assert sizing.num_threads(one, Settings(models=(one,)), num_cores) == threads


def test_threads_can_be_set() -> None:
    one = model(threads=7)

    assert sizing.num_threads(one, Settings(models=(one,)), 2) == 7


def test_every_actor_fits_on_the_smallest_machine() -> None:
    settings = Settings(models=(model(replicas=3),))

    assert sizing.num_cpus(settings) == 4
    chosen = settings.model_copy(update={"ray": RaySettings(num_cpus=9)})
    assert sizing.num_cpus(chosen) == 9


def test_engines_share_half_of_the_machine_and_have_a_gpu_alone() -> None:
    settings = Settings(models=(model(replicas=2),))

    assert sizing.pool_share(settings, on_gpu=False) * settings.num_engines == 0.5
    assert sizing.pool_share(settings, on_gpu=True) == sizing.GPU_POOL_FRACTION


def test_a_pool_size_that_is_set_is_taken() -> None:
    assert blocks(model(kv_blocks=17)) == 17
    assert blocks(model(kv_bytes=(5 << 20) + 1)) == 5
    assert blocks(model(kv_bytes=1)) == 1


@pytest.mark.parametrize(
    ("free_bytes", "expected"),
    [(8 * GIB, 2048), (0, 128), (1000 * GIB, 32 * 128)],
    ids=["a share", "room for one sequence at least", "no more than prefixes need"],
)
def test_a_pool_without_a_size_follows_the_memory(free_bytes: int, expected: int) -> None:
    assert blocks(model(), free_bytes=free_bytes) == expected


def test_a_gpu_has_no_better_use_for_its_memory() -> None:
    assert blocks(model(), free_bytes=1000 * GIB, on_gpu=True) == 250 * 1024
