"""Top-K grouping and transition on a CPU where Numba is installed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from topk_losses._kernels.compiled import in_parts, takes_on_cpu
from topk_losses._kernels.dispatch import is_batched

__all__ = ["takes_union", "union_backward", "union_forward"]

SCORES_PER_THREAD = 2**18


def takes_union(scores: Tensor) -> bool:
    """Whether the kernels can have these scores."""
    return scores.dtype == torch.float32 and takes_on_cpu(scores)


def union_forward(
    scores: Tensor, labels: Tensor, places: Tensor, transition: bool, detach_weight: bool
) -> tuple[Tensor, Tensor]:
    """Losses ``(N,)``, and what the gradient needs of each row, from the K best classes ``(N, K)``, descending."""
    kernels, (rows, classes) = _kernels(), scores.shape
    losses, kept = scores.new_empty(rows), scores.new_empty(rows, kernels.KEPT)
    arrays = _array(scores), _array(labels).reshape(-1), _array(places)
    outputs = losses.numpy(), kept.numpy()

    def part(first: int, last: int) -> None:
        room = kernels.room_for(classes)
        kernels.union_forward(*arrays, transition, detach_weight, *outputs, room, first, last)

    in_parts(part, rows, max(1, SCORES_PER_THREAD // classes))
    return losses, kept


def union_backward(gradient: Tensor, scores: Tensor, labels: Tensor, places: Tensor, kept: Tensor) -> Tensor:
    """The gradient with respect to the scores."""
    if is_batched(gradient) or torch._C._functorch.is_functorch_wrapped_tensor(gradient):
        one = union_backward(scores.new_ones(len(scores)), scores, labels, places, kept)
        return gradient.unsqueeze(1) * one
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    arrays = _array(scores), _array(labels).reshape(-1), _array(places), _array(kept), _array(gradient)
    in_parts(
        lambda first, last: _kernels().union_backward(*arrays, out.numpy(), first, last),
        len(scores),
        max(1, SCORES_PER_THREAD // scores.shape[1]),
    )
    return out


def _array(tensor: Tensor) -> Any:
    """The tensor's memory as NumPy's, put in order first if it is not."""
    return tensor.detach().resolve_neg().contiguous().numpy()


def _kernels() -> Any:
    from topk_losses._kernels import union_numba  # noqa: PLC0415  # compiled when a call needs it

    return union_numba
