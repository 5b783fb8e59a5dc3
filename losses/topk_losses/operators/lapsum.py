"""The soft top-K of Struski et al. 2025."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_k, check_positive, check_scores
from topk_losses._core.shapes import computing
from topk_losses._soft_topk.laplace import soft_topk

__all__ = ["lapsum_topk"]


def lapsum_topk(scores: Tensor, k: int, temperature: float = 1.0) -> Tensor:
    r"""Return LapSum's soft membership of each class in the top k: probabilities with sum k.

    .. math:: p_i = F\bigl((s_i - b) / T\bigr), \qquad \sum_i p_i = k

    with F the distribution function of the Laplace distribution (``e^x / 2`` below 0, ``1 - e^{-x} / 2`` above). The
    threshold b has a closed form: it solves a quadratic equation whose coefficients are sums of exponentials. As
    T → 0, p tends to the indicator of the k largest scores, with the k-th place shared by equal scores; as T → ∞, p
    tends to k / L.

    The gradient, ``∂p_i / ∂s_l = f_i (δ_il - f_l / Σ f)`` with the densities ``f = min(p, 1 - p) / T``, takes one pass.
    It is differentiable again where no score is exactly at the threshold.

    Args:
        scores: ``(..., L)``; -inf masks a class; rows with NaN or +inf give NaN.
        k: size of the set, in ``[1, L]``.
        temperature: T, above 0.

    Returns:
        ``(..., L)``, each row summing to k, or to the number of its finite scores where that is smaller; float64
        for float64 scores, else float32.

    Raises:
        ValueError: for scores that are not floating-point, k outside ``[1, L]`` and temperatures not above 0.

    References:
        Struski et al.: LapSum - One Method to Differentiate Them All: Ranking, Sorting and Top-k Selection, ICML 2025.

    Example:
        >>> import torch
        >>> lapsum_topk(torch.tensor([3.0, 1.0, 2.0, 0.5]), k=2)
        tensor([0.8791, 0.2798, 0.6713, 0.1697])
    """
    check_scores(scores, dimensions=1)
    check_k(k, scores.shape[-1], "the number of classes")
    check_positive("temperature", temperature)
    rows = computing(scores)
    return soft_topk(rows.reshape(-1, rows.shape[-1]), k, temperature).reshape(rows.shape)
