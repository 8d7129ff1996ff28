"""Packed linear layers equal torch's, and their bits do not depend on the batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from freehold.engine.model import linears
from freehold.engine.model.linears import OneDnnLinear, PackedLinear, pack, replace_linears
from freehold.engine.native.library import KernelUnavailable, native_library

NATIVE = native_library()
DTYPES = [torch.float32]
if NATIVE is not None and NATIVE.has_native_bf16:
    DTYPES.append(torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
NUM_ROWS = (0, 1, 2, 11, 12, 13, 25, 200)
"""Around the 12 rows that one pass takes and the 192 of a work unit."""


def make_linear(inputs: int, outputs: int, dtype: torch.dtype, *, bias: bool = False) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(inputs * outputs)  # pyright: ignore[reportUnknownMemberType]
        return nn.Linear(inputs, outputs, bias=bias).to(dtype).requires_grad_(False)


def make_packed(linear: nn.Linear) -> PackedLinear:
    assert NATIVE is not None, "the tests need a C++ compiler"
    return PackedLinear(linear, NATIVE)


def rows(count: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(64, 64), (96, 33), (2, 1), (130, 100)], ids=str)
def test_equals_torch(dtype: torch.dtype, bias: bool, shape: tuple[int, int]) -> None:
    linear = make_linear(*shape, dtype, bias=bias)
    packed = make_packed(linear)
    for count in NUM_ROWS:
        x = rows(count, shape[0], dtype)
        torch.testing.assert_close(
            packed(x), linear(x), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_has_the_same_bits_in_every_batch(dtype: torch.dtype) -> None:
    packed = make_packed(make_linear(576, 192, dtype))
    x = rows(200, 576, dtype)
    whole = packed(x)
    for count in range(1, 40):
        assert torch.equal(packed(x[:count]), whole[:count])
        assert torch.equal(packed(x[-count:]), whole[-count:])


def test_leading_dimensions_and_strides_do_not_matter() -> None:
    linear = make_linear(64, 32, torch.float32)
    x = rows(6, 128, torch.float32)[:, ::2].reshape(2, 3, 64)
    torch.testing.assert_close(make_packed(linear)(x), linear(x))
    torch.testing.assert_close(make_packed(linear)(x.transpose(0, 1)), linear(x.transpose(0, 1)))


def test_packing_keeps_every_weight_once() -> None:
    weight = torch.arange(40 * 6, dtype=torch.float32).view(40, 6)
    packed = pack(weight)
    assert packed.shape == (2, 6, 32, 1)
    assert packed[1, 5, 7, 0] == weight[39, 5]
    assert packed.sum() == weight.sum()


class Model(nn.Module):
    """A tied head, a nested layer and a subclass that must be left alone."""

    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's name
            return 2 * super().forward(input)

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16, dtype=dtype)
        self.inner = nn.Sequential(
            nn.Linear(16, 16, dtype=dtype), self.Doubled(16, 16, dtype=dtype)
        )
        self.head = nn.Linear(16, 40, bias=False, dtype=dtype)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.inner(self.embed(ids)))
        return out


@pytest.mark.parametrize("name", ["packed", "auto"])
def test_a_model_answers_as_before(name: linears.LinearsName) -> None:
    model = Model(torch.float32).requires_grad_(False)
    ids = torch.arange(40)
    before = model(ids)
    assert replace_linears(model, name) == "packed"
    kinds = [type(module) for module in (model.head, *model.inner)]
    assert kinds == [PackedLinear, PackedLinear, Model.Doubled]
    torch.testing.assert_close(model(ids), before)


def test_onednn_answers_as_before() -> None:
    model = Model(torch.bfloat16).requires_grad_(False)
    ids = torch.arange(40)
    before = model(ids)
    assert replace_linears(model, "onednn") == "onednn"
    assert [type(module) for module in model.children()][-1] == OneDnnLinear
    torch.testing.assert_close(model(ids), before, atol=2e-2, rtol=2e-2)


def test_without_a_compiler_auto_takes_the_next_and_a_named_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linears, "native_library", lambda: None)
    assert replace_linears(Model(torch.bfloat16), "auto") == "onednn"
    assert replace_linears(Model(torch.float32), "auto") == "torch"
    with pytest.raises(KernelUnavailable, match="could not be compiled"):
        replace_linears(Model(torch.float32), "packed")


def test_a_type_without_kernel_is_left_to_torch() -> None:
    assert replace_linears(Model(torch.float16), "auto") == "torch"
