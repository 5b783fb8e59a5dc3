"""Top-k accuracy with ties told truthfully, plain and averaged over classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["evaluate", "macro_average", "topk_credit"]


def topk_credit(scores: Tensor, target: Tensor, topk: Sequence[int]) -> Tensor:
    """Return each sample's expected top-k hit under random tie-breaking.

    With g scores above that of the target and t others equal to it, the credit is
    ``clip((k - g) / (t + 1), 0, 1)``. A row with a NaN scores 0.

    Args:
        scores: ``(N, L)``.
        target: int64 ``(N,)``.
        topk: The k wanted.

    Returns:
        float64 ``(len(topk), N)``.

    Example:
        >>> topk_credit(torch.zeros(1, 4), torch.tensor([2]), [1, 2]).flatten().tolist()
        [0.25, 0.5]
    """
    own = scores.gather(1, target[:, None])
    greater = (scores > own).sum(1).double()
    tied = (scores == own).sum(1).double() - 1
    ks = torch.tensor(list(topk), dtype=torch.float64, device=scores.device)[:, None]
    credit = ((ks - greater) / (tied + 1)).clamp(0, 1)
    return torch.where(scores.isnan().any(1), 0.0, credit)


def macro_average(credit: Tensor, target: Tensor, classes: int) -> Tensor:
    """Return the mean over the classes that occur of each class's own mean credit.

    Args:
        credit: ``(M, N)``.
        target: int64 ``(N,)``.
        classes: L.

    Returns:
        ``(M,)``.
    """
    counts = torch.bincount(target, minlength=classes)
    sums = torch.zeros(len(credit), classes, dtype=credit.dtype, device=credit.device)
    sums.index_add_(1, target, credit)
    present = counts > 0
    return (sums[:, present] / counts[present]).mean(1)


def evaluate(scores: Tensor, target: Tensor, topk: Sequence[int]) -> dict[str, float]:
    """Return ``top{k}`` and ``macro_top{k}`` accuracies in ``[0, 1]`` for every k.

    Args:
        scores: ``(N, L)``.
        target: int64 ``(N,)``.
        topk: The k wanted.
    """
    credit = topk_credit(scores, target, topk)
    plain = credit.mean(1).tolist()
    macro = macro_average(credit, target, scores.shape[1]).tolist()
    return {
        f"{kind}top{k}": value
        for kind, row in (("", plain), ("macro_", macro))
        for k, value in zip(topk, row, strict=True)
    }
