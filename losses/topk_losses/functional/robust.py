"""Bounded losses against wrong labels, functions of ``log p = log softmax(s)``.

Masked classes have ``log p = -inf`` and are left out of sums over the classes. A rule takes rows ``(M, L)`` and labels
``(M, C)`` to losses ``(M, C)``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from topk_losses._core.checks import all_within, check_not_negative, check_one_of, check_positive
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._core.shapes import log_softmax

__all__ = ["active_passive_loss", "asymmetric_loss", "symmetric_cross_entropy"]

LOG_ZERO = math.log(1e-4)
"""What stands for log 0 in reverse cross-entropy, as in the code of its authors."""

FLOOR = math.log(1e-7)
"""The least log p that the negative losses tell apart, as in the code of their authors."""


def _log_chances(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """``log p`` of all classes and of the labels."""
    log_p = log_softmax(rows)
    return log_p, log_p.gather(1, labels)


@takes_single_rows
def symmetric_cross_entropy(
    scores: Tensor,
    target: Tensor,
    alpha: float = 0.1,
    beta: float = 1.0,
    **shared: Unpack[Shared],
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
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
        own = _log_chances(rows, labels)[1]
        return -alpha * own - beta * LOG_ZERO * _error(own, 1.0)

    return reduce_loss(losses, scores, target, Reduction(**shared))


def _error(own: Tensor, factor: float) -> Tensor:
    """``1 - p_y``, times a factor."""
    return torch.expm1(own) * -factor


@takes_single_rows
def active_passive_loss(
    scores: Tensor,
    target: Tensor,
    alpha: float = 1.0,
    beta: float = 1.0,
    passive: str = "rce",
    **shared: Unpack[Shared],
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
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
    check_one_of("passive", passive, tuple(PASSIVE))

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        log_p, own = _log_chances(rows, labels)
        return torch.add(PASSIVE[passive](log_p, own, beta), _normalised(log_p, own), alpha=alpha)

    return reduce_loss(losses, scores, target, Reduction(**shared))


def _normalised(log_p: Tensor, own: Tensor) -> Tensor:
    """``log p_y / Σ_j log p_j``; 0 where a single class is left, and for a masked label, whose loss is set later."""
    total = log_p.sum(1, keepdim=True)
    if all_within(total, -sys.float_info.max, -sys.float_info.min):
        return own / total
    total = log_p.masked_fill(log_p.detach() == -torch.inf, 0).sum(1, keepdim=True)
    # The total would get a gradient of 0 · inf from a masked label that counts for nothing.
    return own.masked_fill(own.detach() == -torch.inf, 0) / total.masked_fill(total == 0, 1)


def _negative(log_p: Tensor, own: Tensor, factor: float) -> Tensor:
    """``1 - (log p_y - F) / Σ_j (log p_j - F)``, with every log p at least F, times a factor."""
    heights = log_p.clamp(min=FLOOR) - FLOOR
    return factor * (1 - (own.clamp(min=FLOOR) - FLOOR) / heights.sum(1, keepdim=True))


PASSIVE: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "mae": lambda _, own, factor: _error(own, factor),
    "rce": lambda _, own, factor: _error(own, -LOG_ZERO * factor),
    "nnce": _negative,
}
"""The passive losses by name, as functions of log p, of the label's and of the factor before them."""


@takes_single_rows
def asymmetric_loss(
    scores: Tensor,
    target: Tensor,
    form: str = "agce",
    a: float = 0.6,
    q: float = 0.6,
    alpha: float = 0.0,
    beta: float = 1.0,
    **shared: Unpack[Shared],
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
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
        log_p, own = _log_chances(rows, labels)
        alone = FORMS[form](own, a, q, beta)
        return torch.add(alone, _normalised(log_p, own), alpha=alpha) if alpha else alone

    return reduce_loss(losses, scores, target, Reduction(**shared))


def check_asymmetric(form: str, a: float, q: float) -> None:
    """Check the form of an asymmetric loss and its parameters."""
    check_one_of("form", form, tuple(FORMS))
    check_positive("a", a)
    check_positive("q", q)
    if form == "aul" and a <= 1:
        raise ValueError(f"a must be above 1 for the form 'aul', got {a}")


def _agce(own: Tensor, a: float, q: float, factor: float) -> Tensor:
    """``((a + 1)^q - (a + p)^q) / q``, without cancellation where p is close to 1, times a factor."""
    ratio = torch.log1p(torch.expm1(own) / (a + 1))
    scale: float = (a + 1) ** q / q
    return torch.expm1(q * ratio) * (-factor * scale)


def _aul(own: Tensor, a: float, q: float, factor: float) -> Tensor:
    """``((a - p)^q - (a - 1)^q) / q``, without cancellation where p is close to 1, times a factor."""
    ratio = torch.log1p(torch.expm1(own) / (1 - a))
    scale: float = (a - 1) ** q / q
    return torch.expm1(q * ratio) * (factor * scale)


FORMS: dict[str, Callable[[Tensor, float, float, float], Tensor]] = {
    "agce": _agce,
    "aul": _aul,
    "ael": lambda own, a, _, factor: factor * torch.exp(-own.exp() / a),
}
"""The asymmetric losses by name, as functions of log p_y, a, q and the factor before them."""
