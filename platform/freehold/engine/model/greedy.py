"""The most likely token of every row: greedy sampling, by our own kernel where there is one.

torch's argmax is slow in bfloat16 (2.6 ms a step of 32 rows where this takes 0.1).
"""

from __future__ import annotations

import torch

from freehold.engine.native.library import DTYPE_CODES, native_library


def greedy_argmax(logits: torch.Tensor) -> torch.Tensor:
    """int64 ``[rows]`` from ``[rows, vocabulary]``; of equal logits the lowest token id wins."""
    library = native_library() if logits.device.type == "cpu" else None
    if library is None or logits.dtype not in DTYPE_CODES:
        return logits.argmax(dim=-1)
    logits = logits.contiguous()
    rows, columns = logits.shape
    out = torch.empty(rows, dtype=torch.int64)
    library.argmax(
        DTYPE_CODES[logits.dtype],
        logits.data_ptr(),
        rows,
        columns,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out
