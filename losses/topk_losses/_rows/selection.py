"""The k largest scores of each row, by a compiled loop where Numba is installed, else by torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import OnFirstUse, choose

__all__ = ["Largest", "largest", "refusal"]

KERNELS = OnFirstUse("topk_losses._rows.selection_kernels")
FEWEST, FEWEST_FOR_ONE = 80, 320  # with fewer classes torch is as fast, for k > 1 and for k = 1
MOST = 128  # the largest k


class Largest(NamedTuple):
    """Scores, descending, and their classes, ``(M, k)`` each."""

    values: Tensor
    indices: Tensor


def refusal(rows: Tensor, k: int, asked: bool = False) -> str | None:
    """Why the kernel does not take this call."""
    if not 0 < k <= min(MOST, rows.shape[1] // 2):
        return f"k is above {MOST} or half of the classes"
    if rows.shape[1] < (FEWEST if k > 1 else FEWEST_FOR_ONE) and not asked:
        return "torch is as fast for so few classes"
    return numba.refusal(rows, (torch.float32,))


def largest(rows: Tensor, k: int) -> Largest:
    """``rows.topk(k, dim=1)``, differentiable; equal scores come in any order, NaN is the largest.

    Example:
        >>> import torch
        >>> largest(torch.tensor([[1.0, 3.0, 2.0]]), 2)
        Largest(values=tensor([[3., 2.]]), indices=tensor([[1, 2]]))
    """
    if choose("largest", numba=lambda asked: refusal(rows, k, asked)) == "torch":
        values, indices = rows.topk(k, dim=1)
        return Largest(values, indices)
    indices = rows.new_empty(rows.shape[0], k, dtype=torch.int64)
    bits = rows.detach().resolve_neg().contiguous().view(torch.int32).numpy()
    places = indices.numpy()

    def part(first: int, last: int) -> None:
        KERNELS.largest(bits, *KERNELS.buffers_for(rows.shape[1], k), places, first, last)

    numba.over_rows(part, rows)
    return Largest(rows.gather(1, indices), indices)
