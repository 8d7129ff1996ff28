"""The fused rotation answers as the families' own, and only where it is the same rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
import torch
from torch import nn
from transformers.models.llama import modeling_llama
from transformers.models.olmo2 import modeling_olmo2

from freehold.engine.model import rotary
from freehold.engine.model.rotary import FusedRotary, fuse_rotary
from freehold.engine.native.library import native_library

if TYPE_CHECKING:
    from freehold.engine.model.rotary import Rotation

Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]
Tensors: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def rotation_of(family: Any) -> Rotation:
    """transformers leaves its types open."""
    return cast("Rotation", family.apply_rotary_pos_emb)


apply_rotary_pos_emb = rotation_of(modeling_llama)


class Attention(nn.Module):
    """Looks the rotation up as transformers' attention modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> Pair:
        return apply_rotary_pos_emb(q, k, cos, sin)


def inputs(num_tokens: int, dim: int, dtype: torch.dtype = torch.float32) -> Tensors:
    """Queries and keys as projections leave them: ``[1, tokens, heads, dim]`` in memory."""
    generator = torch.Generator().manual_seed(4)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    q, k = (random(1, num_tokens, heads, dim).transpose(1, 2) for heads in (6, 2))
    return q, k, random(1, num_tokens, dim), random(1, num_tokens, dim)


@pytest.fixture
def attention() -> Attention:
    if native_library() is None:
        pytest.skip("no compiler")
    module = Attention()
    assert fuse_rotary(nn.Sequential(module)) == 1
    return module


@pytest.mark.parametrize("family", [modeling_llama, modeling_olmo2], ids=["llama", "olmo2"])
@pytest.mark.parametrize("num_tokens", [1, 40])
@pytest.mark.parametrize("dim", [64, 24])
def test_it_rotates(attention: Attention, num_tokens: int, dim: int, family: object) -> None:
    tensors = inputs(num_tokens, dim)
    expected = rotation_of(family)(*tensors)
    for got, want in zip(attention(*tensors), expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_bfloat16_is_rounded_once(attention: Attention) -> None:
    tensors = inputs(5, 64, torch.bfloat16)
    q, k, cos, sin = (tensor.float() for tensor in tensors)
    exact = apply_rotary_pos_emb(q, k, cos, sin)
    for got, want in zip(attention(*tensors), exact, strict=True):
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.float(), want, atol=1e-6, rtol=2**-8)


def test_a_token_has_the_same_bits_in_every_batch(attention: Attention) -> None:
    q, k, cos, sin = inputs(40, 64)
    alone = attention(q[:, :, 7:8], k[:, :, 7:8], cos[:, 7:8], sin[:, 7:8])
    together = attention(q, k, cos, sin)
    assert all(torch.equal(a, b[:, :, 7:8]) for a, b in zip(alone, together, strict=True))


def test_a_batch_goes_to_the_original(attention: Attention) -> None:
    q, k, cos, sin = inputs(5, 64)
    q2, k2 = (tensor.expand(2, -1, -1, -1) for tensor in (q, k))
    for got, want in zip(attention(q2, k2, cos, sin), attention(q, k, cos, sin), strict=True):
        torch.testing.assert_close(got[1:], want, atol=1e-5, rtol=1e-5)


def test_only_the_given_model_is_changed(attention: Attention) -> None:
    assert "forward" in vars(attention)
    assert not isinstance(apply_rotary_pos_emb, FusedRotary)
    assert "forward" not in vars(Attention())


def test_another_rotation_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def interleaved(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
        return q * cos.unsqueeze(1) + q.roll(1, -1) * sin.unsqueeze(1), k

    other: Rotation = interleaved
    monkeypatch.setitem(globals(), rotary.NAME, other)
    assert fuse_rotary(nn.Sequential(Attention())) == 0
