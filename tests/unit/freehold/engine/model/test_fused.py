"""Fused modules answer as the originals, and replace only what they can stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from freehold.engine.model import fused
from freehold.engine.model.fused import FusedRmsNorm, FusedSiluMlp, fuse

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = [torch.float32, torch.bfloat16]
NORMS: list[Callable[[int], nn.Module]] = [LlamaRMSNorm, Gemma2RMSNorm, Olmo2RMSNorm]


class Mlp(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(40, 50), nn.Linear(40, 50)
        self.down_proj, self.act_fn = nn.Linear(50, 40), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return out


def randomized(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    generator = torch.Generator().manual_seed(5)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return module.to(dtype).requires_grad_(False)


def inputs(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(6)).to(dtype)


def check_fused(original: nn.Module, x: torch.Tensor, kind: type[nn.Module]) -> None:
    model = nn.Sequential(original)
    expected = original(x)
    assert fuse(model) == 1
    assert [type(module) for module in model] == [kind]
    tolerance = 2e-5 if x.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(model(x), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", NORMS, ids=str)
@pytest.mark.parametrize("width", [576, 40])
def test_norms(norm: Callable[[int], nn.Module], width: int, dtype: torch.dtype) -> None:
    check_fused(randomized(norm(width), dtype), inputs(2, 20, width, dtype=dtype), FusedRmsNorm)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gated_mlp(dtype: torch.dtype) -> None:
    mlp = randomized(Mlp(nn.SiLU()), dtype)
    check_fused(mlp, inputs(20, 40, dtype=dtype), FusedSiluMlp)


def test_a_row_has_the_same_bits_in_every_batch() -> None:
    model = nn.Sequential(randomized(LlamaRMSNorm(40), torch.float32), nn.Identity())
    fuse(model)
    x = inputs(64, 40, dtype=torch.float32)
    assert torch.equal(model(x[7:8]), model(x)[7:8])


def test_what_computes_something_else_is_left_alone() -> None:
    class CenteredNorm(LlamaRMSNorm):
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = super().forward(hidden_states - hidden_states.mean(-1, True))
            return out

    others = [CenteredNorm(40), Mlp(nn.GELU()), nn.LayerNorm(40), nn.Linear(40, 40)]
    model = nn.Sequential(*(randomized(module, torch.float32) for module in others))
    kinds = [type(module) for module in model]
    assert fuse(model) == 0
    assert [type(module) for module in model] == kinds


def test_nothing_is_replaced_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "native_library", lambda: None)
    assert fuse(nn.Sequential(LlamaRMSNorm(40))) == 0
