"""The threshold of a soft top-K: the root of a monotone function between two bounds, by Newton's method.

Scores and threshold are relative to the K-th largest score, in units of τ, float64. Every evaluation tightens the
bounds; a step that leaves them is replaced by their midpoint. The root is found outside autograd. Two further Newton
steps inside autograd do not change the value, and give it the first three derivatives, because each step doubles the
order of the error.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._core.checks import values_are_readable
from topk_losses._rows.invalid import with_nan
from topk_losses._rows.selection import largest
from topk_losses._soft_topk.shapes import LOWEST, Shape

__all__ = ["Standing", "differentiable", "standing", "threshold_of"]

STEPS = 40  # about eight are needed; where values cannot be read, all are taken
SMALL = 1e-9  # the size of a last step: the error after it is about its square


class Standing(NamedTuple):
    """A row's scores as distances from its K-th largest score, in units of τ, float64.

    Attributes:
        values: ``(M, L)``; very low for masked classes, all 0 in rows without a threshold, NaN in invalid rows.
        places: Classes of the K + 1 largest scores, descending, ``(M, K + 1)``; all classes if there are fewer.
        few: Whether at most K classes are unmasked, ``(M, 1)``; such a row has no threshold.
        invalid: Whether the row contains NaN or +inf, ``(M, 1)``.
    """

    values: Tensor
    places: Tensor
    few: Tensor
    invalid: Tensor


def standing(rows: Tensor, k: int, tau: float) -> Standing:
    """Rows ``(M, L)`` as distances, in differentiable operations."""
    top = largest(rows, min(k + 1, rows.shape[1]))
    best = top.values.detach()
    few = torch.ones_like(best[:, :1], dtype=torch.bool) if k >= rows.shape[1] else best[:, k:] == -torch.inf
    centre = best[:, k - 1 : k].double().masked_fill(few, 0)
    invalid = ~(best[:, :1] < torch.inf)
    values = ((rows.double() - centre) / tau).clamp(min=LOWEST).masked_fill(few, 0)
    # Spoilt here as well as at the end, because a bounded shape has gradient 0 outside its bounds and would stop NaN.
    return Standing(with_nan(values, invalid), top.indices, few, invalid)


def threshold_of(now: Standing, k: int, shape: Shape) -> Tensor:
    """The threshold ``(M, 1)`` without derivatives."""
    values = now.values.detach()
    edge = values.gather(1, now.places[:, k - 1 : k + 1])
    if shape.by_middle or edge.shape[1] == 1:
        return edge.mean(1, keepdim=True)
    above, rest = _split(values, now.places, k)
    below, beyond = shape.bracket(k, values.shape[1])
    low, high = edge[:, 1:] - below, edge[:, :1] + beyond
    level = (low + high) / 2
    readable = values_are_readable(values)
    for _ in range(STEPS):
        value, slope = shape.equation(above - level, rest - level)
        low, high = torch.where(value < 0, level, low), torch.where(value > 0, level, high)
        step = level - value / slope
        step = torch.where((step >= low) & (step <= high), step, (low + high) / 2)
        step = torch.where(value == 0, level, step)
        before, level = level, step
        if readable and not ((level - before).abs() > SMALL).any():
            break
    return level


def differentiable(now: Standing, k: int, shape: Shape) -> Tensor:
    """The threshold ``(M, 1)`` with its derivatives."""
    if shape.by_middle:
        return now.values.gather(1, now.places[:, k - 1 : k + 1]).mean(1, keepdim=True)
    level = threshold_of(now, k, shape)
    if now.places.shape[1] == k:
        return level
    above, rest = _split(now.values, now.places, k)
    for _ in range(2):
        value, slope = shape.equation(above - level, rest - level)
        flat = slope == 0
        level = level - (value / slope.masked_fill(flat, 1)).masked_fill(flat, 0)
    return level


def _split(values: Tensor, places: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The values of the K best ``(M, K)``, and all values with those of the K best very low ``(M, L)``."""
    best = places[:, :k]
    return values.gather(1, best), values.scatter(1, best, LOWEST)
