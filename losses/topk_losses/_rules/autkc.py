"""The area under the top-k curve: the label against each of the K + 1 best of the other classes.

The curve is the top-k accuracy over k = 1 … K. A label behind j other classes is among the k best from ``k = j + 1``
on, so each of the K best other classes that is ahead of the label costs 1 / K of the area. The loss replaces this step
function of the difference by a smooth surrogate.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from topk_losses._core.shapes import log_softmax
from topk_losses._rows.invalid import with_nan_where_invalid
from topk_losses._rows.places import others_of, places_among
from topk_losses._rows.selection import largest

__all__ = ["SURROGATES", "autkc"]

SURROGATES: dict[str, Callable[[Tensor], Tensor]] = {
    "squared": lambda x: (1 - x) ** 2,
    "exponential": lambda x: torch.exp(-x),
    "logistic": lambda x: torch.nn.functional.softplus(-x),
    "hinge": lambda x: (1 - x).relu(),
}
"""Functions of the label's value minus another class's; values are probabilities, for ``"hinge"`` scores."""


def autkc(rows: Tensor, labels: Tensor, k: int, surrogate: str) -> Tensor:
    """The losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``."""
    top = largest(rows, min(k + 2, rows.shape[1]))
    values = with_nan_where_invalid(rows if surrogate == "hinge" else log_softmax(rows).exp(), top.values)
    places = places_among(top.indices, labels, rows)
    best = others_of(values.gather(1, top.indices), places)
    masked = others_of(top.values.detach(), places) == -torch.inf
    gaps = values.gather(1, labels).unsqueeze(2) - best.masked_fill(masked, 0)
    return SURROGATES[surrogate](gaps).masked_fill(masked, 0).sum(2) / k
