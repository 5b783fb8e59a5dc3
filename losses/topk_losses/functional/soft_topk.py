"""The losses on the soft top-K membership that a threshold defines."""

from __future__ import annotations

from typing import Any, Unpack

from torch import Tensor

from topk_losses._core.autograd import RuleOfLabels
from topk_losses._core.backends import choose
from topk_losses._core.checks import check_positive, check_soft_topk, check_topk
from topk_losses._core.reduction import Reduction, Shared, names_shared, reduce_loss, takes_single_rows
from topk_losses._soft_topk import cpu, cuda
from topk_losses._soft_topk.laplace import LapSum
from topk_losses._soft_topk.plain import PlainSoftTopK

__all__ = ["lapsum_topk_loss", "soft_topk_loss"]


@takes_single_rows
def soft_topk_loss(
    scores: Tensor,
    target: Tensor,
    k: int,
    tau: float = 1.0,
    shape: str = "logistic",
    form: str = "log",
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Soft top-K loss: ``-log p_y`` or ``1 - p_y``, with p_y the target's soft membership in the top K.

    .. math:: -\log p_y \;\text{ or }\; 1 - p_y, \qquad p_j = F\bigl((s_j - \theta) / \tau\bigr), \qquad
        \sum_j p_j = K

    The shapes F are those of :func:`soft_topk`. The form ``"log"`` is ``-log p_y``, computed from log p_y directly,
    so it is exact however small p_y is. With the logistic shape it is the loss of the LML layer of Amos et al. 2019,
    with a threshold exact to rounding (their solver stops at 1e-4); with the Laplace shape it is
    :func:`lapsum_topk_loss`; with the midpoint it is the loss of DFTopK. The form ``"error"`` is the soft top-K
    error ``1 - p_y``. It is at most 1, which makes it robust to wrong labels.

    The gradient is ``F'_y (w_j - 1[j = y]) / τ``, times ``1 / p_y`` for ``"log"``, with ``w_j = F'_j / Σ F'``. It
    sums to 0 over each row. It does not differentiate through the search for θ.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        tau: τ, above 0.
        shape: ``"logistic"``, ``"laplace"``, ``"gaussian"``, ``"clip"``, ``"power"`` or ``"midpoint"``.
        form: ``"log"`` or ``"error"``. For ``"clip"`` and ``"power"``, whose p can be 0, only ``"error"``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, k outside ``[1, L - 1]``, τ not above 0, unknown
            shapes and forms, and ``"log"`` of a shape whose p can be 0.

    References:
        Amos, Koltun, Kolter: The Limited Multi-Label Projection Layer, arXiv 2019; Struski et al.: LapSum, ICML 2025;
        Sander et al.: Fast, Differentiable and Sparse Top-k, ICML 2023; Zhu et al.: DFTopK, arXiv 2025.

    Example:
        >>> import torch
        >>> soft_topk_loss(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(1.0414)
    """
    check_topk(scores, k)
    check_positive("tau", tau)
    check_soft_topk(shape, form)
    by_log = form == "log"

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        backend = _backend(rows, labels, k, shape, by_log) if labels.shape[1] == 1 else "torch"
        return _rule(backend, k, tau, shape, by_log).losses(rows, labels)

    return reduce_loss(losses, scores, target, Reduction(**shared))


@names_shared
def lapsum_topk_loss(
    scores: Tensor,
    target: Tensor,
    k: int,
    temperature: float = 1.0,
    **shared: Unpack[Shared],
) -> Tensor:
    """LapSum top-K loss: :func:`soft_topk_loss` with the Laplace shape, and the temperature as τ.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        k: K, in ``[1, L - 1]``.
        temperature: τ, above 0.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: as for :func:`soft_topk_loss`.

    References:
        Struski et al.: LapSum - One Method to Differentiate Them All: Ranking, Sorting and Top-k Selection, ICML 2025.

    Example:
        >>> import torch
        >>> lapsum_topk_loss(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(1.2736)
    """
    check_positive("temperature", temperature)
    return soft_topk_loss(scores, target, k, temperature, "laplace", **shared)


def _backend(rows: Tensor, labels: Tensor, k: int, shape: str, by_log: bool) -> str:
    return choose(
        "soft_topk",
        triton=lambda asked: cuda.refusal(rows, labels, k, shape, by_log, asked),
        numba=lambda _: cpu.refusal(rows),
    )


def _rule(backend: str, k: int, tau: float, shape: str, by_log: bool) -> RuleOfLabels[Any]:
    """The rule of a backend. In torch the Laplace threshold has a closed form, ten times as fast as Newton's method."""
    if backend == "torch" and shape == "laplace" and by_log:
        return LapSum(k, tau)
    rules = {"triton": cuda.TritonSoftTopK, "numba": cpu.NumbaSoftTopK, "torch": PlainSoftTopK}
    return rules[backend](k, tau, shape, by_log)
