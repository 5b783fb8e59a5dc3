"""The smooth top-K SVM of Berrada et al. 2018."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._core.autograd import losses_by
from topk_losses._core.backends import choose
from topk_losses._core.checks import check_positive, check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_complete, reduce_loss, takes_single_rows
from topk_losses._core.shapes import per_label, with_nan_where_invalid
from topk_losses._smooth_svm import cpu, cuda
from topk_losses._smooth_svm.plain import PlainSmoothSVM
from topk_losses._smooth_svm.symmetric import LARGEST_EXPONENT, log_subsets, log_symmetric_table

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
    check_topk(scores, k, margin)
    check_positive("tau", tau)
    how = Reduction(**shared)
    backend = choose(
        "smooth_topk_svm",
        triton=lambda asked: cuda.refusal(scores, target, k, margin, asked),
        numba=lambda asked: cpu.refusal(scores, target, k, asked),
    )
    if backend != "torch":
        kernels = cuda.TritonSmoothSVM if backend == "triton" else cpu.NumbaSmoothSVM
        return reduce_complete(kernels(k, tau, how.ignore_index), scores, target, how, margin)
    in_logarithms = log_subsets(scores.shape[1] - 1, k) > LARGEST_EXPONENT

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        if in_logarithms:
            return by_recursion(rows, labels, per_label(margin, labels, rows), k, tau)
        margins = per_label(margin, labels.view(-1), rows)
        return losses_by(PlainSmoothSVM(k, tau), rows, labels, margins).unsqueeze(1)

    return reduce_loss(losses, scores, target, how, soft=False)


def by_recursion(rows: Tensor, labels: Tensor, margins: float | Tensor, k: int, tau: float) -> Tensor:
    """The formula as it stands, ``(M, 1)``, with σ_K and σ_{K-1} by a recursion over the classes in log-space.

    It is right for any K, and slow. The backends compute the same faster (``_smooth_svm/arguments.py``) wherever a
    float64 can count the K-subsets.
    """
    scores = rows.to(torch.float64)
    largest = rows.detach().amax(1, keepdim=True)
    centre = largest.to(torch.float64).clamp(min=torch.finfo(rows.dtype).min)
    shifted = (scores - centre) / (k * tau)
    table = log_symmetric_table(shifted.scatter(1, labels, -torch.inf), k)
    few = table[:, k : k + 1] == -torch.inf
    ratio = table[:, k : k + 1].masked_fill(few, 0) - table[:, k - 1 : k].masked_fill(few, 0)
    argument = margins / tau + ratio - shifted.gather(1, labels)
    loss = (-tau * logsigmoid(-argument)).to(rows.dtype)
    return with_nan_where_invalid(loss.masked_fill(few & ~rows.isnan().any(1, keepdim=True), 0), largest)
