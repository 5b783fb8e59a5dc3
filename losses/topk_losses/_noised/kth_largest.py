"""The k-th largest of a few dozen values, for thousands of columns at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

__all__ = ["LONGEST", "kth_largest"]

LONGEST = 16  # the largest k; for larger k, selecting column by column is faster
BLOCK = 8  # values sorted into one list

Places = list[Tensor | None]


def kth_largest(values: Tensor, k: int) -> Tensor:
    """The k-th largest of each column, ``(R, C)`` to ``(C,)``, for k in ``[1, R]``; not for autograd.

    Blocks of values are sorted into lists of their k largest, for all columns at once, and the lists are merged in
    pairs. This takes a few dozen minima and maxima of whole rows, and is several times faster than column by column.
    """
    count, columns = values.shape
    values = values.contiguous()
    if k > LONGEST:
        return values.t().contiguous().kthvalue(count - k + 1, dim=1).values
    blocks = max(1, count // BLOCK)
    height = count // blocks
    together = values[: height * blocks].view(height, blocks * columns)
    ordered = [places.view(blocks, columns).unbind(0) for places in _largest(together.unbind(0), k)]
    lists: list[Sequence[Tensor]] = list(zip(*ordered, strict=True))
    if height * blocks < count:
        lists.append(_largest(values[height * blocks :].unbind(0), k))
    while len(lists) > 2:
        first, second, *lists = lists
        lists.append(_merged(first, second, k))
    return _of_both(lists[0], lists[1], k) if len(lists) == 2 else lists[0][k - 1]


def _largest(values: Sequence[Tensor], k: int) -> list[Tensor]:
    """The k largest, descending, by insertion."""
    ordered: list[Tensor] = []
    for value in values:
        sinking = value
        for position, present in enumerate(ordered):
            ordered[position] = torch.maximum(present, sinking)
            sinking = torch.minimum(present, sinking)
        if len(ordered) < k:
            ordered.append(sinking)
    return ordered


def _merged(first: Sequence[Tensor], second: Sequence[Tensor], k: int) -> list[Tensor]:
    """The k largest of two descending lists, by Batcher's bitonic merge; None stands for -inf."""
    size = 1 << (max(k, len(first), len(second)) - 1).bit_length()
    places: Places = [
        _larger(first[i] if i < len(first) else None, second[j] if j < len(second) else None)
        for i, j in zip(range(size), reversed(range(size)), strict=True)
    ]
    distance = size // 2
    while distance:
        for i in range(size):
            if not i & distance:
                one, other = places[i], places[i + distance]
                places[i] = _larger(one, other)
                places[i + distance] = None if one is None or other is None else torch.minimum(one, other)
        distance //= 2
    return [position for position in places[:k] if position is not None]


def _larger(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else other
    return torch.maximum(one, other)


def _of_both(first: Sequence[Tensor], second: Sequence[Tensor], k: int) -> Tensor:
    """The k-th largest of two descending lists: the best way to take i from one and k - i from the other."""
    ways = [
        torch.minimum(first[i - 1], second[k - i - 1])
        if 0 < i < k
        else (first[k - 1] if i else second[k - 1])
        for i in range(max(0, k - len(second)), min(k, len(first)) + 1)
    ]
    return reduce(torch.maximum, ways)
