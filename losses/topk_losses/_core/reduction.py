"""From losses of rows to the result: hard and soft targets, ignored labels, weights and reductions.

A loss is a function of scores ``(M, L)`` and labels ``(M, C)`` that returns the losses ``(M, C)`` of each row for each
of its C labels. For labels C is 1. For soft targets the result is the expectation over a label drawn from them,
``Σ_c t_c loss(s, c)``, so C is L.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar, cast

import torch
from torch import Tensor

from topk_losses._core.autograd import Rule, losses_by
from topk_losses._core.checks import (
    FINITE,
    all_within,
    check_labels,
    check_losses,
    check_per_class,
    check_reduction,
    check_scores,
    check_soft,
    check_target,
    values_are_readable,
)
from topk_losses._core.shapes import (
    class_last,
    computing,
    cross_entropies,
    few_classes,
    full_precision,
    per_label,
)

__all__ = [
    "Direct",
    "Reduction",
    "RowLosses",
    "Shared",
    "names_shared",
    "reduce_complete",
    "reduce_entropy",
    "reduce_loss",
    "takes_single_rows",
]

RowLosses: TypeAlias = Callable[[Tensor, Tensor], Tensor]

Direct: TypeAlias = Callable[..., Tensor]
"""A loss by torch's own kernels: rows ``(M, L)``, labels ``(M,)`` or probabilities, and the keywords of
``torch.nn.functional.cross_entropy`` to the reduced loss.
"""

F = TypeVar("F", bound=Callable[..., Tensor])


class Shared(TypedDict, total=False):
    """The keyword arguments that all losses share with torch's cross-entropy, see :class:`Reduction`."""

    weight: Tensor | None
    ignore_index: int
    reduction: str


class Reduction(NamedTuple):
    """The arguments that all losses share with torch's cross-entropy.

    Attributes:
        weight: One factor per class ``(L,)``. The mean divides by the sum of the labels' weights. With soft targets
            the weights multiply the terms of the expectation, and the mean divides by the number of samples.
        ignore_index: Label of the samples to leave out.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"


def names_shared(loss: F) -> F:
    """Decorate a function with ``**shared`` so that its signature names what these are."""
    signature = inspect.signature(loss)
    own = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind.__forward_arg__
        )
        for (name, kind), default in zip(Shared.__annotations__.items(), Reduction(), strict=True)
    ]
    loss.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return loss


def takes_single_rows(loss: F) -> F:
    """Decorate a loss to take a single row ``(L,)`` and its label ``()`` as well, as torch's cross-entropy does."""

    @names_shared
    @functools.wraps(loss)
    def of_any(scores: Tensor, target: Tensor, *args: Any, **options: Any) -> Tensor:
        check_target(target)
        if _is_single_row(scores, target):
            return loss(scores.unsqueeze(0), target.unsqueeze(0), *args, **options).squeeze(0)
        return loss(scores, target, *args, **options)

    return cast("F", of_any)


def _is_single_row(scores: Tensor, target: Tensor) -> bool:
    if not (isinstance(scores, Tensor) and scores.ndim == 1):
        return False
    return target.ndim == 0 or (target.is_floating_point() and target.shape == scores.shape)


def reduce_loss(
    losses_of: RowLosses,
    scores: Tensor,
    target: Tensor,
    how: Reduction,
    *,
    soft: bool = True,
    direct: Direct | None = None,
) -> Tensor:
    """Apply a loss of rows to scores and targets as torch's cross-entropy would.

    Args:
        losses_of: The loss of rows.
        scores: ``(N, L)`` or ``(N, L, ...)``.
        target: Labels ``(N, ...)``, or probabilities of the scores' shape where ``soft`` allows them.
        how: Weights, ignored labels and the reduction.
        soft: Whether the loss takes soft targets.
        direct: The same loss by torch's kernels, where there is such a form. It is several times as fast, and used
            where its value can be read and is finite, so that no target is masked.

    Returns:
        A scalar, or for ``"none"`` a tensor ``(N, ...)``; float64 for float64 scores, else float32.

    Raises:
        ValueError: For wrong shapes, dtypes, reductions and labels out of range.
    """
    check_reduction(how.reduction)
    check_scores(scores)
    if how.weight is not None:
        check_per_class("weight", how.weight, scores.shape[1])
    rows = computing(class_last(scores))
    with full_precision(scores):
        if target.is_floating_point():
            check_soft(scores, target, how.ignore_index, soft)
            probabilities = computing(class_last(target)).to(rows.dtype)
            value = None if direct is None else _directly(direct, rows, probabilities, scores, how)
            if value is not None:
                return value
            losses = _expected(losses_of, rows, probabilities, how.weight)
            return losses.mean() if how.reduction == "mean" else _finished(losses, scores, how)
        known = check_labels(target, scores.shape, scores.shape[1], how.ignore_index)
        labels = _flat(target)
        # A row of an ignored sample may be without an unmasked class.
        if direct is not None and (known or all_within(rows.detach()[:, 0], *FINITE)):
            value = _directly(direct, rows, labels, scores, how)
            if value is not None:
                return value
        return _of_labels(losses_of, rows, labels.unsqueeze(1), scores, how, known)


def reduce_complete(
    rule: Rule[Any], scores: Tensor, target: Tensor, how: Reduction, margin: float | Tensor, *inputs: Tensor
) -> Tensor:
    """Apply a complete rule to scores and labels as :func:`reduce_loss` would, without further kernels.

    Args:
        rule: The rule.
        scores: As for :func:`reduce_loss`.
        target: Labels ``(N, ...)``.
        how: As for :func:`reduce_loss`.
        margin: One number, or one per class ``(L,)``.
        inputs: The rule's further inputs.
    """
    check_reduction(how.reduction)
    if how.weight is not None:
        check_per_class("weight", how.weight, scores.shape[1])
    known = check_labels(target, scores.shape, scores.shape[1], how.ignore_index)
    rows, labels = class_last(scores), _flat(target)
    with full_precision(scores):
        margins = per_label(margin, labels, rows)
        if how.weight is None and how.reduction == "mean":
            count = len(labels) if known else (labels != how.ignore_index).sum()
            return losses_by(rule, rows, labels, margins, *inputs, count=count)
        losses = losses_by(rule, rows, labels, margins, *inputs)
        if how.weight is None:
            return _finished(losses, scores, how)
        ignored = None if known else labels == how.ignore_index
        return _weighted(losses, labels.clamp(0, scores.shape[1] - 1), ignored, scores, how)


def _flat(target: Tensor) -> Tensor:
    labels = target if target.dtype == torch.int64 else target.to(torch.int64)
    return labels if labels.ndim == 1 else labels.reshape(-1)


def reduce_entropy(
    scores: Tensor, target: Tensor, how: Reduction, change: Callable[[Tensor], Tensor] = lambda rows: rows
) -> Tensor:
    """Cross-entropy of scores that a function of rows changes, by torch's own kernels wherever they are fast."""

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return cross_entropies(change(rows), labels)

    def direct(rows: Tensor, target: Tensor, **shared: Any) -> Tensor:
        return torch.nn.functional.cross_entropy(change(rows), target, **shared)

    return reduce_loss(losses, scores, target, how, direct=direct)


def _directly(direct: Direct, rows: Tensor, target: Tensor, scores: Tensor, how: Reduction) -> Tensor | None:
    """The loss by torch's kernels; None where they are slow, or its value is not finite or cannot be read."""
    if not values_are_readable(rows) or few_classes(rows):
        return None
    weight = None if how.weight is None else how.weight.to(rows.dtype)
    value = direct(rows, target, weight=weight, ignore_index=how.ignore_index, reduction=how.reduction)
    if not all_within(value, *FINITE):
        return None
    return value if how.reduction != "none" or scores.ndim == 2 else _finished(value, scores, how)


def _of_labels(
    losses_of: RowLosses, rows: Tensor, labels: Tensor, scores: Tensor, how: Reduction, none_ignored: bool
) -> Tensor:
    ignored = None if none_ignored else labels == how.ignore_index
    if ignored is not None:
        rows, labels = _without_empty(rows, ignored), labels.masked_fill(ignored, 0)
    losses = losses_of(rows, labels)
    check_losses(losses, rows, labels)
    losses = _infinite_where_masked(losses, rows.detach().gather(1, labels))
    losses = losses if ignored is None else losses.masked_fill(ignored, 0)
    if how.weight is not None:
        return _weighted(losses, labels, ignored, scores, how)
    if how.reduction != "mean":
        return _finished(losses, scores, how)
    return losses.mean() if ignored is None else losses.sum() / (~ignored).sum()


def _weighted(
    losses: Tensor, labels: Tensor, ignored: Tensor | None, scores: Tensor, how: Reduction
) -> Tensor:
    """The losses times the weights of their labels, which are in range, reduced."""
    assert how.weight is not None  # noqa: S101
    shares = how.weight.to(losses.dtype)[labels]
    if ignored is not None:  # the loss of ignored samples is 0 even for an infinite weight: 0 · inf is NaN
        shares = shares.masked_fill(ignored, 0)
        losses = torch.where(ignored, losses, losses * shares)
    else:
        losses = losses * shares
    return losses.sum() / shares.sum() if how.reduction == "mean" else _finished(losses, scores, how)


def _without_empty(rows: Tensor, ignored: Tensor) -> Tensor:
    """Rows in which ignored samples without an unmasked class have scores of 0; their gradient would be NaN.

    Where values cannot be read, this would cost every call a copy of the scores: such rows stay as they are.
    """
    if not values_are_readable(rows):
        return rows
    scores = rows.detach()
    empty = ignored & (scores[:, :1] == -torch.inf)
    if not empty.any():
        return rows
    return rows.masked_fill(empty & (scores.amax(1, keepdim=True) == -torch.inf), 0)


def _infinite_where_masked(losses: Tensor, own: Tensor) -> Tensor:
    """Set the losses to +inf where the target's ``own`` score is -inf, whatever the other classes' scores are."""
    if all_within(own, -sys.float_info.max, math.inf):
        return losses
    return losses.masked_fill(own == -torch.inf, torch.inf)


def _expected(losses_of: RowLosses, rows: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The expected losses ``(M,)`` over labels drawn from soft targets ``(M, L)``."""
    labels = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
    losses = losses_of(rows, labels)
    check_losses(losses, rows, labels)
    losses = _infinite_where_masked(losses, rows.detach())
    # A masked class with target probability 0 contributes 0: here 0 · inf is 0.
    losses = losses.masked_fill((target == 0) & losses.isinf(), 0)
    return (losses * target if weight is None else losses * target * weight.to(rows.dtype)).sum(1)


def _finished(losses: Tensor, scores: Tensor, how: Reduction) -> Tensor:
    return losses.sum() if how.reduction == "sum" else losses.reshape(scores.shape[:1] + scores.shape[2:])
