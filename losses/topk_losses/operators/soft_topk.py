"""The soft top-K membership that a threshold defines, for a family of shapes."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_k, check_positive, check_scores, check_soft_topk
from topk_losses._core.shapes import computing
from topk_losses._soft_topk import laplace
from topk_losses._soft_topk.plain import memberships

__all__ = ["lapsum_topk", "soft_topk"]


def soft_topk(scores: Tensor, k: int, tau: float = 1.0, shape: str = "logistic") -> Tensor:
    r"""Return the soft membership of each class in the top k, a function of its distance from a threshold.

    .. math:: p_j = F\bigl((s_j - \theta) / \tau\bigr), \qquad \sum_j p_j = k

    ====================  =======================================================================================
    shape                 F
    ====================  =======================================================================================
    ``"logistic"``        ``1 / (1 + e^-x)`` (Amos et al. 2019)
    ``"laplace"``         ``e^x / 2`` below 0, ``1 - e^-x / 2`` above: :func:`lapsum_topk` (Struski et al. 2025)
    ``"gaussian"``        Φ
    ``"clip"``            ``clip(x, 0, 1)``: the projection of s / τ on ``0 <= p <= 1, Σ p = k`` (Sander et al. 2023)
    ``"power"``           ``clip(x, 0, 1)^3``: the p-norm of Sander et al. with p = 4/3
    ``"midpoint"``        the logistic F with θ midway between the k-th and (k+1)-th largest scores (DFTopK): Σ p ≈ k
    ====================  =======================================================================================

    Newton's method between two bounds finds θ up to rounding. As τ → 0, p tends to the indicator of the k largest
    scores. The gradient is ``∂p_i / ∂s_j = f_i (1[i = j] - f_j / Σ f) / τ`` with the densities f = F'; p has higher
    derivatives where F has.

    Args:
        scores: ``(..., L)``; -inf masks a class; rows with NaN or +inf give NaN.
        k: size of the set, in ``[1, L]``.
        tau: τ, above 0.
        shape: the name of F in the table.

    Returns:
        ``(..., L)``, each row summing to k, or to the number of its finite scores where that is smaller; float64
        for float64 scores, else float32.

    Raises:
        ValueError: for scores that are not floating-point, k outside ``[1, L]``, τ not above 0 and unknown shapes.

    References:
        Amos, Koltun, Kolter: The Limited Multi-Label Projection Layer, arXiv 2019; Struski et al.: LapSum, ICML 2025;
        Sander et al.: Fast, Differentiable and Sparse Top-k, ICML 2023; Zhu et al.: DFTopK, arXiv 2025.

    Example:
        >>> import torch
        >>> soft_topk(torch.tensor([3.0, 1.0, 2.0, 0.5]), k=2)
        tensor([0.8012, 0.3530, 0.5972, 0.2486])
        >>> soft_topk(torch.tensor([3.0, 1.0, 2.0, 0.5]), k=2, tau=2.0, shape="clip")
        tensor([1.0000, 0.2500, 0.7500, 0.0000])
    """
    check_scores(scores, dimensions=1)
    check_k(k, scores.shape[-1], "the number of classes")
    check_positive("tau", tau)
    check_soft_topk(shape)
    if shape == "laplace":
        return lapsum_topk(scores, k, tau)
    rows = computing(scores)
    return memberships(rows.reshape(-1, rows.shape[-1]), k, tau, shape).reshape(rows.shape)


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
    return laplace.soft_topk(rows.reshape(-1, rows.shape[-1]), k, temperature).reshape(rows.shape)
