"""Choosing how many candidates a sample gets: the costs of each choice, and the loss of a network that chooses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from topk_losses._core.checks import check_k, check_labels, check_reduction, check_scores
from topk_losses._core.shapes import computing
from topk_losses._rows.invalid import with_nan_where_invalid

__all__ = ["cardinality_costs", "cardinality_loss"]

GROWTHS = ("log", "linear")


def cardinality_costs(
    scores: Tensor, labels: Tensor, cardinalities: Sequence[int], penalty: float, growth: str = "log"
) -> Tensor:
    r"""Cost of giving each sample its k best classes, for several k: a miss costs 1, and more classes cost more.

    .. math::

        c_k = \frac{1[y \text{ is not among the k best}] + \lambda \, g(k)}{1 + \lambda}, \qquad
        g(k) = \frac{\log k}{\log k_{max}} \text{ or } \frac{k}{k_{max}}

    The division by ``1 + λ`` keeps the cost in [0, 1]: otherwise the weight ``1 - c`` of :func:`cardinality_loss` could
    be negative, and its loss would have no lower bound. A class that ties with others counts as hit with the chance
    that breaking the ties at random gives it.

    Args:
        scores: the classifier's scores ``(N, L)``.
        labels: int64 ``(N,)``.
        cardinalities: the k to choose from, ascending, each in ``[1, L]``.
        penalty: λ, at least 0.
        growth: ``"log"`` or ``"linear"``, how the cost of a set grows with its size.

    Returns:
        ``(N, len(cardinalities))``, float64 for float64 scores, else float32; without a gradient. NaN for a row that
        contains NaN or +inf.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, cardinalities that are not ascending or not in
            ``[1, L]``, λ below 0 and an unknown growth.

    References:
        Cortes, Mao, Mohri, Mohri, Zhong: Cardinality-Aware Set Prediction and Top-k Classification, NeurIPS 2024.

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
        >>> cardinality_costs(scores, torch.tensor([1]), (1, 2, 4), penalty=0.0)
        tensor([[1., 0., 0.]])
    """
    check_scores(scores)
    _check_labels(scores, labels)
    _check_choices(cardinalities, scores.shape[1], penalty, growth)
    rows = computing(scores.detach())
    own = rows.gather(1, labels.long()[:, None])
    greater, tied = (rows > own).sum(1, keepdim=True), (rows == own).sum(1, keepdim=True)
    sizes = torch.tensor(cardinalities, dtype=rows.dtype, device=rows.device)
    missed = 1 - ((sizes - greater) / tied).clamp(0, 1)
    missed = with_nan_where_invalid(missed, rows.amax(1, keepdim=True))
    return (missed + penalty * _grown(sizes, growth)) / (1 + penalty)


def _check_labels(scores: Tensor, labels: Tensor) -> None:
    if scores.ndim != 2:
        raise ValueError(f"scores must have the shape (N, L), got {tuple(scores.shape)}")
    if not isinstance(labels, Tensor) or labels.is_floating_point():
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels must be a tensor of integers, got {kind}")
    check_labels(labels, scores.shape, scores.shape[1], ignore_index=None)


def _grown(sizes: Tensor, growth: str) -> Tensor:
    if growth == "linear":
        return sizes / sizes[-1]
    return sizes.log() / sizes[-1].log().clamp(min=math.log(2))


def _check_choices(cardinalities: Sequence[int], classes: int, penalty: float, growth: str) -> None:
    if not cardinalities or list(cardinalities) != sorted(set(cardinalities)):
        raise ValueError(f"cardinalities must be at least one k, ascending, got {tuple(cardinalities)}")
    for k in cardinalities:
        check_k(k, classes, "the number of classes")
    if not 0 <= penalty < math.inf:
        raise ValueError(f"penalty must be at least 0 and finite, got {penalty!r}")
    if growth not in GROWTHS:
        raise ValueError(f"growth must be one of {GROWTHS}, got {growth!r}")


def cardinality_loss(selection: Tensor, costs: Tensor, reduction: str = "mean") -> Tensor:
    r"""Cost-sensitive logistic loss of a network that chooses the number of candidates.

    .. math:: \sum_k (1 - c_k) \log \sum_{k'} \exp(r_{k'} - r_k)

    Its gradient with respect to ``r_k`` is ``q_k Σ_j (1 - c_j) - (1 - c_k)`` with ``q = softmax(r)``: the network
    learns to choose k in proportion to ``1 - c_k``, so the best choice has the largest r.

    Args:
        selection: r, the network's scores of the choices ``(N, C)``.
        costs: c, the cost of each choice ``(N, C)``, in [0, 1], such as those of :func:`cardinality_costs`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N,)`` for ``"none"``; float64 for float64 scores, else float32.

    Raises:
        ValueError: for wrong shapes and an unknown reduction.

    References:
        Cortes, Mao, Mohri, Mohri, Zhong: Cardinality-Aware Set Prediction and Top-k Classification, NeurIPS 2024.

    Example:
        >>> cardinality_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(2.1269)
    """
    check_reduction(reduction)
    check_scores(selection, "selection")
    check_scores(costs, "costs")
    if selection.ndim != 2 or costs.shape != selection.shape:
        raise ValueError(
            f"costs must have the shape (N, C) of the selection, got {tuple(costs.shape)} and {tuple(selection.shape)}"
        )
    rows = computing(selection)
    losses = -((1 - costs.to(rows.dtype)) * rows.log_softmax(1)).sum(1)
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
