"""Margins and class weights for long-tailed data, computed from the class counts once before training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from topk_losses._core.checks import check_counts, check_positive, check_share

__all__ = ["effective_number_weights", "uneven_margins"]


def uneven_margins(class_counts: Tensor | Sequence[int], max_margin: float) -> Tensor:
    r"""Return margins that are larger for rarer classes.

    .. math:: m_c = m_{max} \cdot (n_c / \min n)^{-1/4}

    Args:
        class_counts: n, the number of training samples of each class ``(L,)``, above 0.
        max_margin: the margin of the rarest class, above 0, in the units of the scores.

    Returns:
        float32 margins ``(L,)``.

    Raises:
        ValueError: for counts or ``max_margin`` not above 0. On a GPU this check waits for the device.

    References:
        Cao et al.: Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019.

    Example:
        >>> uneven_margins([1600, 100, 100], max_margin=0.5)
        tensor([0.2500, 0.5000, 0.5000])
    """
    check_positive("max_margin", max_margin)
    counts = _counts(class_counts)
    return (max_margin * (counts / counts.amin()) ** -0.25).float()


def effective_number_weights(class_counts: Tensor | Sequence[int], beta: float = 0.9999) -> Tensor:
    r"""Return class weights by the effective number of samples, with mean 1, as in LDAM's deferred re-weighting.

    .. math:: w_c \propto (1 - \beta) / (1 - \beta^{n_c})

    Deferred means that training starts without weights and uses them from a given epoch on.

    Args:
        class_counts: n, the number of training samples of each class ``(L,)``, above 0.
        beta: β, in [0, 1): 0 gives equal weights; as β → 1 the weights tend to multiples of 1 / n.

    Returns:
        float32 weights ``(L,)``.

    Raises:
        ValueError: for counts not above 0 and β outside [0, 1). On a GPU this check waits for the device.

    References:
        Cui et al.: Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019.

    Example:
        >>> effective_number_weights([1000, 10], beta=0.99)
        tensor([0.1746, 1.8254])
    """
    check_share("beta", beta)
    counts = _counts(class_counts)
    weights = (1 - beta) / (1 - beta**counts)
    return (weights / weights.mean()).float()


def _counts(class_counts: Tensor | Sequence[int]) -> Tensor:
    counts = torch.as_tensor(class_counts)
    check_counts(counts, look=True)
    return counts.double()
