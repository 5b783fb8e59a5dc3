"""The smooth top-K SVM of Berrada et al. 2018."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from topk_losses._core.checks import check_k, check_margin, check_positive, check_scores
from topk_losses._core.reduction import Reduction, Shared, takes_single_rows
from topk_losses._smooth_svm.rule import smooth_svm

__all__ = ["smooth_topk_svm"]


@takes_single_rows
def smooth_topk_svm(
    scores: Tensor,
    target: Tensor,
    k: int,
    tau: float = 1.0,
    margin: float | Tensor = 1.0,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Smooth top-K SVM: a top-K hinge whose maxima over subsets of K classes are smoothed with temperature τ.

    .. math::
        \tau \log \Bigl(1 + \frac{\sigma_K(e_{\setminus y})}{\sigma_{K-1}(e_{\setminus y})}
        e^{(\alpha - s_y / K) / \tau} \Bigr), \qquad e_j = \exp(s_j / (K \tau))

    with σ_m the m-th elementary symmetric polynomial. For K = 1, τ = 1, α = 0 it is cross-entropy; as τ → 0
    it tends to ``(α + (s_{\y})_[K] / K - s_y / K)_+``.

    Without a margin it is ``-τ log π_y``, where π_y is the probability that a K-subset drawn with weight ``Π e_j``
    contains y (:func:`inclusion_probabilities` at the temperature ``K τ``). This is the exact-K likelihood of SIMPLE
    (Ahmed et al. 2023), to which Berrada et al. add the margin.

    On CUDA devices, where Triton is installed and works, kernels read float32 and half-precision scores once forward
    and once backward, for K up to 20 and up to 2^15 classes, outside ``torch.compile``. On the CPU, where Numba is
    installed, its kernels do the same for K up to 128, outside ``torch.compile`` and ``torch.func``.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``.
        k: K, in ``[1, L - 1]``.
        tau: temperature τ, above 0.
        margin: α, a number or one per class ``(L,)``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, k outside ``[1, L - 1]``, τ not above 0.

    References:
        Berrada, Zisserman, Kumar: Smooth Loss Functions for Deep Top-k Classification, ICLR 2018, (9), (10);
        Ahmed et al.: SIMPLE: A Gradient Estimator for k-Subset Sampling, ICLR 2023.

    Example:
        >>> import torch
        >>> smooth_topk_svm(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(0.7909)
    """
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)
    check_positive("tau", tau)
    check_margin(margin, scores.shape[1])
    return smooth_svm(scores, target, k, tau, margin, Reduction(**shared))
