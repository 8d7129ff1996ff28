"""Which backend is taken, and what is said when a named one cannot run."""

from __future__ import annotations

import pytest
import torch

from freehold.engine.attention import select
from freehold.engine.attention.select import choose_backend
from freehold.engine.native.library import KernelUnavailable

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_auto_takes_the_compiled_kernel_on_a_cpu() -> None:
    backend = choose_backend("auto", dtype=torch.float32, device=CPU, has_softcap=True)
    assert backend.name == "cpu"


def test_auto_falls_back_to_torch_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "native_library", lambda: None)
    assert (
        choose_backend("auto", dtype=torch.float32, device=CPU, has_softcap=False).name == "torch"
    )
    with pytest.raises(KernelUnavailable, match="could not be compiled"):
        choose_backend("cpu", dtype=torch.float32, device=CPU, has_softcap=False)


def test_auto_falls_back_to_torch_for_a_type_without_kernel() -> None:
    assert (
        choose_backend("auto", dtype=torch.float16, device=CPU, has_softcap=False).name == "torch"
    )


def test_flash_attention_is_not_taken_for_a_model_with_softcap() -> None:
    with pytest.raises(KernelUnavailable, match="caps its attention scores"):
        choose_backend("flash", dtype=torch.bfloat16, device=CUDA, has_softcap=True)


@pytest.mark.parametrize("name", ["flash", "flashinfer"])
def test_a_named_backend_is_never_silently_replaced(name: select.BackendName) -> None:
    with pytest.raises(KernelUnavailable, match="needs CUDA"):
        choose_backend(name, dtype=torch.bfloat16, device=CPU, has_softcap=False)
    with pytest.raises(KernelUnavailable, match="needs CUDA and a 16-bit type"):
        choose_backend(name, dtype=torch.float32, device=CUDA, has_softcap=False)
