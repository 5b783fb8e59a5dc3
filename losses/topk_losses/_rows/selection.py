"""The k largest scores of each row, by a compiled loop or by torch, and the ranks of labels among them.

Ranks are by class index, so that equal scores have different ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from topk_losses._core import numba
from topk_losses._core.backends import choose, lazily

__all__ = [
    "Candidates",
    "Groups",
    "Largest",
    "above",
    "among",
    "grouped",
    "largest",
    "others_of",
    "places_among",
    "refusal",
    "slots",
]

KERNELS = lazily("topk_losses._rows.selection_kernels")
FEWEST, FEWEST_FOR_ONE = 80, 320  # with fewer classes torch is as fast, for k > 1 and for k = 1
MOST = 128  # the largest k


class Largest(NamedTuple):
    """Scores, descending, and their classes, ``(M, k)`` each."""

    values: Tensor
    indices: Tensor


def refusal(rows: Tensor, k: int, asked: bool = False) -> str | None:
    """Why the kernel does not take this call."""
    if not 0 < k <= min(MOST, rows.shape[1] // 2):
        return f"k is above {MOST} or half of the classes"
    if rows.shape[1] < (FEWEST if k > 1 else FEWEST_FOR_ONE) and not asked:
        return "torch is as fast for so few classes"
    return numba.refusal(rows, (torch.float32,))


def largest(rows: Tensor, k: int) -> Largest:
    """``rows.topk(k, dim=1)``, differentiable; equal scores come in any order, NaN is the largest.

    Example:
        >>> import torch
        >>> largest(torch.tensor([[1.0, 3.0, 2.0]]), 2)
        Largest(values=tensor([[3., 2.]]), indices=tensor([[1, 2]]))
    """
    if choose("largest", numba=lambda asked: refusal(rows, k, asked)) == "torch":
        values, indices = rows.topk(k, dim=1)
        return Largest(values, indices)
    indices = rows.new_empty(rows.shape[0], k, dtype=torch.int64)
    bits = rows.detach().resolve_neg().contiguous().view(torch.int32).numpy()
    places = indices.numpy()

    def part(first: int, last: int) -> None:
        KERNELS().largest(bits, *KERNELS().buffers_for(rows.shape[1], k), places, first, last)

    numba.over_rows(part, rows)
    return Largest(rows.gather(1, indices), indices)


def among(places: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """Whether each label ``(M, C)`` is one of the row's classes ``places`` ``(M, K)``."""
    return torch.zeros_like(rows, dtype=torch.bool).scatter(1, places, True).gather(1, labels)


def places_among(ahead: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """The rank of each label ``(M, C)`` among the row's best classes ``ahead`` ``(M, K)``, from 0; K if not there."""
    k = ahead.shape[1]
    if labels.shape[1] == 1:
        return ((ahead == labels).cumsum(1) == 0).sum(1, keepdim=True)
    ranks = torch.arange(k, device=rows.device).expand_as(ahead)
    return torch.full_like(rows, k, dtype=torch.int64).scatter(1, ahead, ranks).gather(1, labels)


def others_of(top: Tensor, places: Tensor) -> Tensor:
    """The n - 1 largest of the other scores ``(M, C, n - 1)`` from the n largest of all, descending ``(M, n)``."""
    first = torch.arange(top.shape[1] - 1, device=top.device) < places.unsqueeze(2)
    return torch.where(first, top[:, None, :-1], top[:, None, 1:])


SPARE = 4  # at least this times k groups, so that the k-th largest maximum is close to the k-th largest score


class Groups(NamedTuple):
    """Scores divided into G groups; class c is in group ``c mod G``."""

    members: Tensor
    """The scores ``(N, size·G)``, padded with -inf."""
    maxima: Tensor
    """The largest score of each group ``(N, G)``."""
    centre: Tensor
    """A close lower bound of the k-th largest score ``(N,)``, reached by the maxima of k groups."""
    largest: Tensor
    """The largest score ``(N,)``; NaN if the row contains NaN."""


class Candidates(NamedTuple):
    """Some classes of each row, in the order of the rows; E is their total number."""

    rows: Tensor
    """``(E,)``, ascending."""
    classes: Tensor
    """``(E,)``."""
    scores: Tensor
    """``(E,)``."""


def grouped(scores: Tensor, k: int) -> Groups:
    """Divide the scores ``(N, L)`` into groups of 1, 2, 4 or 8 classes."""
    size = next(size for size in (8, 4, 2, 1) if size == 1 or scores.shape[1] >= SPARE * k * size)
    missing = -scores.shape[1] % size
    members = pad(scores, (0, missing), value=-torch.inf) if missing else scores
    maxima = members
    while maxima.shape[1] * size > members.shape[1]:
        maxima = _halves(maxima)
    coarse = maxima
    while coarse.shape[1] >= 2 * SPARE * k:
        coarse = _halves(coarse)
    best = coarse.topk(k).values
    return Groups(members, maxima, best[:, -1], best[:, 0])


def _halves(x: Tensor) -> Tensor:
    """The maximum of columns j and j + w/2: ``(N, w)`` to ``(N, w/2)``."""
    if x.shape[1] % 2:
        x = pad(x, (0, 1), value=-torch.inf)
    left, right = x.tensor_split(2, 1)
    return torch.maximum(left, right)


def above(groups: Groups, level: Tensor) -> Candidates:
    """The classes whose scores are at least the level of their row ``(N,)``."""
    width, count = groups.members.shape[1], groups.maxima.shape[1]
    hot = (groups.maxima >= level.unsqueeze(1)).flatten().nonzero().squeeze(1)
    row = hot // count
    first = row * width + (hot - row * count)
    places = (first.unsqueeze(1) + torch.arange(0, width, count, device=first.device)).flatten()
    scores = groups.members.flatten().index_select(0, places)
    reaching = scores.view(-1, width // count) >= level.index_select(0, row).unsqueeze(1)
    kept = reaching.flatten().nonzero().squeeze(1)
    places = places.index_select(0, kept)
    row = row.index_select(0, kept // (width // count))
    return Candidates(row, places - row * width, scores.index_select(0, kept))


def slots(columns: Tensor, counts: Tensor) -> Tensor:
    """The position of each entry within its column, from 0, for ascending column numbers and their counts."""
    first = counts.cumsum(0).sub_(counts)
    return torch.arange(len(columns), device=columns.device).sub_(first.index_select(0, columns))
