"""Finding the few large scores of long rows: group maxima exclude most classes without looking at each one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["Candidates", "Groups", "above", "grouped", "slots"]

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
