"""The smooth convex top-K hinge on a CPU where Numba is installed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from topk_losses._fused import Margin
from topk_losses._kernels.compiled import in_parts
from topk_losses._kernels.dispatch import is_batched
from topk_losses._kernels.selection import largest, takes_selection

__all__ = ["hinge_backward", "hinge_forward", "takes_hinge"]

SCORES_PER_THREAD = 2**17


def takes_hinge(scores: Tensor, k: int) -> bool:
    """Whether the kernels can have these scores."""
    return takes_selection(scores, k + 1)


def hinge_forward(
    scores: Tensor, labels: Tensor, margin: Margin, k: int, gamma: float
) -> tuple[Tensor, Tensor]:
    """Losses ``(N,)``, and what the gradient needs of each row."""
    kernels, (rows, classes) = _kernels(), scores.shape
    losses, kept = scores.new_empty(rows), scores.new_empty(rows, kernels.KEPT)
    margins = torch.as_tensor(margin, dtype=torch.float64).reshape(-1)
    places = largest(scores, k + 1).indices
    arrays = _array(scores), _array(labels).reshape(-1), _array(places), _array(margins), float(gamma)
    outputs = losses.numpy(), kept.numpy()

    def part(first: int, last: int) -> None:
        rooms = kernels.room_for(k), kernels.room_for(classes)
        kernels.hinge_forward(*arrays, *outputs, *rooms, first, last)

    in_parts(part, rows, max(1, SCORES_PER_THREAD // classes))
    return losses, kept


def hinge_backward(
    gradient: Tensor, scores: Tensor, labels: Tensor, kept: Tensor, k: int, gamma: float
) -> tuple[Tensor, Tensor]:
    """The gradient with respect to the scores and the margins."""
    if is_batched(gradient) or torch._C._functorch.is_functorch_wrapped_tensor(gradient):
        by_score, by_margin = hinge_backward(scores.new_ones(len(scores)), scores, labels, kept, k, gamma)
        return gradient.unsqueeze(1) * by_score, gradient * by_margin
    by_score = torch.empty_like(scores, memory_format=torch.contiguous_format)
    by_margin = scores.new_empty(len(scores))
    arrays = _array(scores), _array(labels).reshape(-1), _array(gradient), _array(kept), k, float(gamma)
    outputs = by_score.numpy(), by_margin.numpy()
    in_parts(
        lambda first, last: _kernels().hinge_backward(*arrays, *outputs, first, last),
        len(scores),
        max(1, SCORES_PER_THREAD // scores.shape[1]),
    )
    return by_score, by_margin


def _array(tensor: Tensor) -> Any:
    """The tensor's memory as NumPy's, put in order first if it is not."""
    return tensor.detach().resolve_neg().contiguous().numpy()


def _kernels() -> Any:
    from topk_losses._kernels import hinge_numba  # noqa: PLC0415  # compiled when a call needs it

    return hinge_numba
