"""The k largest scores of each row: in a compiled loop where one can be had, else by torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from topk_losses._kernels.compiled import in_parts, takes_on_cpu

__all__ = ["Largest", "largest", "takes_selection"]

FEWEST, FEWEST_FOR_ONE = 80, 320  # with fewer classes, torch sorts as fast, and finds the one largest as fast
MOST = 128
SCORES_PER_THREAD = 2**18


class Largest(NamedTuple):
    """Scores, descending, and their classes, ``(M, k)`` each."""

    values: Tensor
    indices: Tensor


def takes_selection(rows: Tensor, k: int) -> bool:
    """Whether the kernel can have this call, and pays."""
    return (
        rows.dtype == torch.float32
        and rows.shape[1] >= max(FEWEST if k > 1 else FEWEST_FOR_ONE, 2 * k)
        and 0 < k <= MOST
        and takes_on_cpu(rows)
    )


def largest(rows: Tensor, k: int) -> Largest:
    """``rows.topk(k, dim=1)``, differentiable; of equal scores either may come first, NaN is the largest.

    Example:
        >>> import torch
        >>> largest(torch.tensor([[1.0, 3.0, 2.0]]), 2)
        Largest(values=tensor([[3., 2.]]), indices=tensor([[1, 2]]))
    """
    if not takes_selection(rows, k):
        values, indices = rows.topk(k, dim=1)
        return Largest(values, indices)
    kernels = _kernels()
    indices = torch.empty(rows.shape[0], k, dtype=torch.int64)
    bits = rows.detach().resolve_neg().contiguous().view(torch.int32).numpy()
    places = indices.numpy()

    def part(first: int, last: int) -> None:
        kernels.largest(bits, *kernels.rooms_for(rows.shape[1], k), places, first, last)

    in_parts(part, rows.shape[0], max(1, SCORES_PER_THREAD // rows.shape[1]))
    return Largest(rows.gather(1, indices), indices)


def _kernels() -> Any:
    from topk_losses._kernels import selection_numba  # noqa: PLC0415  # compiled when a call needs it

    return selection_numba
