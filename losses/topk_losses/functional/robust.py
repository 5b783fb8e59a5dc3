"""Bounded losses against wrong labels."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_asymmetric, check_not_negative, check_one_of
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._rules import robust

__all__ = ["active_passive_loss", "asymmetric_loss", "symmetric_cross_entropy"]


@takes_single_rows
def symmetric_cross_entropy(
    scores: Tensor,
    target: Tensor,
    alpha: float = 0.1,
    beta: float = 1.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Symmetric cross-entropy: cross-entropy and reverse cross-entropy, where label and probabilities change places.

    .. math:: \alpha \, (-\log p_y) + \beta \, (-A) (1 - p_y), \qquad A = \log 10^{-4}, \quad p = \mathrm{softmax}(s)

    A stands for the logarithm of the label's zeros, with the value of the authors' code; only β A matters. The second
    term is a multiple of :func:`~topk_losses.functional.mean_absolute_error`.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        alpha: α, at least 0.
        beta: β, at least 0.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and α or β below 0.

    References:
        Wang et al.: Symmetric Cross Entropy for Robust Learning with Noisy Labels, ICCV 2019.

    Example:
        >>> import torch
        >>> symmetric_cross_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(7.0971)
    """
    check_not_negative("alpha", alpha)
    check_not_negative("beta", beta)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return robust.symmetric(rows, labels, alpha, beta)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))


@takes_single_rows
def active_passive_loss(
    scores: Tensor,
    target: Tensor,
    alpha: float = 1.0,
    beta: float = 1.0,
    passive: str = "rce",
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Active-passive loss: normalised cross-entropy, and a loss that lowers the other classes' probabilities.

    .. math:: \alpha \frac{\log p_y}{\sum_j \log p_j} + \beta \, P, \qquad p = \mathrm{softmax}(s)

    ==========  ==========================================================================================
    passive     P
    ==========  ==========================================================================================
    ``"mae"``   ``1 - p_y``: NCE+MAE
    ``"rce"``   ``-A (1 - p_y)``, ``A = log 1e-4``: NCE+RCE, the same with another β
    ``"nnce"``  ``1 - (log p_y - F) / Σ_j (log p_j - F)``, ``F = log 1e-7``: active negative loss, ANL-CE
    ==========  ==========================================================================================

    Each part is bounded and robust to evenly spread wrong labels. In ``"nnce"`` no log p is taken below F. ANL-CE comes
    with an L1 penalty of the network's weights, outside this loss.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        alpha: α, at least 0.
        beta: β, at least 0.
        passive: ``"mae"``, ``"rce"`` or ``"nnce"``.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, α or β below 0 and other names of P.

    References:
        Ma et al.: Normalized Loss Functions for Deep Learning with Noisy Labels, ICML 2020; Ye et al.: Active Negative
        Loss Functions for Learning with Noisy Labels, NeurIPS 2023.

    Example:
        >>> import torch
        >>> active_passive_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(7.2896)
    """
    check_not_negative("alpha", alpha)
    check_not_negative("beta", beta)
    check_one_of("passive", passive, tuple(robust.PASSIVE))

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return robust.active_passive(rows, labels, alpha, beta, passive)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))


@takes_single_rows
def asymmetric_loss(
    scores: Tensor,
    target: Tensor,
    form: str = "agce",
    a: float = 0.6,
    q: float = 0.6,
    alpha: float = 0.0,
    beta: float = 1.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Asymmetric loss: a bounded function of the label's probability, alone or beside normalised cross-entropy.

    .. math:: \alpha \frac{\log p_y}{\sum_j \log p_j} + \beta \, A(p_y), \qquad p = \mathrm{softmax}(s)

    ==========  ==================================  ==================
    form        A(p)                                a
    ==========  ==================================  ==================
    ``"agce"``  ``((a + 1)^q - (a + p)^q) / q``     above 0
    ``"aul"``   ``((a - p)^q - (a - 1)^q) / q``     above 1
    ``"ael"``   ``exp(-p / a)``                     above 0; q unused
    ==========  ==================================  ==================

    It tolerates wrong labels as long as, of each image's labels, the right one is the most frequent.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        form: ``"agce"``, ``"aul"`` or ``"ael"``.
        a: a, see the table.
        q: q, above 0.
        alpha: α, at least 0; at 0 there is no normalised cross-entropy.
        beta: β, at least 0.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, other names of forms and parameters out of bounds.

    References:
        Zhou et al.: Asymmetric Loss Functions for Learning with Noisy Labels, ICML 2021.

    Example:
        >>> import torch
        >>> asymmetric_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.7034)
    """
    check_asymmetric(form, a, q)
    check_not_negative("alpha", alpha)
    check_not_negative("beta", beta)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return robust.asymmetric(rows, labels, form, a, q, alpha, beta)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))
