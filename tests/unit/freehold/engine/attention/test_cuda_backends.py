"""The CUDA backends against the torch one; needs a device and the packages."""

from __future__ import annotations

import pytest
import torch

from freehold.engine.attention.layout import make_layout
from freehold.engine.attention.protocol import AttentionParams, LayerPool
from freehold.engine.attention.select import BackendName, choose_backend
from freehold.engine.attention.torch_backend import TorchAttention
from freehold.engine.batch import StepBatch, StepRow
from freehold.engine.native.library import KernelUnavailable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("name", ["flash", "flashinfer"])
def test_equals_the_torch_backend(
    name: BackendName, window: int | None, softcap: float | None
) -> None:
    device = torch.device("cuda")
    try:
        backend = choose_backend(
            name, dtype=torch.bfloat16, device=device, has_softcap=softcap is not None
        )
    except KernelUnavailable as error:
        pytest.skip(str(error))
    batch = StepBatch([StepRow([0] * 40, 0, [3, 1, 5], True, 1), StepRow([0], 9, [2], False, 1)])
    layout = make_layout(batch, 16, device)
    params = AttentionParams(0.125, window, softcap)
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]  # torch's own gap
    pool = torch.randn(2, 8, 16, 2, 64, device=device, dtype=torch.bfloat16)
    queries = torch.randn(41, 6, 64, device=device, dtype=torch.bfloat16)
    keys, values = torch.randn(2, 41, 2, 64, device=device, dtype=torch.bfloat16)

    outs = [
        chosen.plan(layout).attend(LayerPool(*pool.clone()), queries, keys, values, params)
        for chosen in (backend, TorchAttention())
    ]
    torch.testing.assert_close(outs[0], outs[1], atol=2e-2, rtol=2e-2)
