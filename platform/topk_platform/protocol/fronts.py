"""Several objectives, each to be maximised: the Pareto front of points, and its hypervolume."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["hypervolume", "pareto", "spread"]

Point = Sequence[float]


def pareto(points: Sequence[Point]) -> list[int]:
    """Return the positions of the points that no other point dominates. Of equal points, only the first counts.

    Example:
        >>> pareto([(0.8, 0.9), (0.7, 0.95), (0.7, 0.9), (0.8, 0.9)])
        [0, 1]
    """
    return [i for i, point in enumerate(points) if not any(_beats(points, j, i) for j in range(len(points)))]


def _beats(points: Sequence[Point], one: int, other: int) -> bool:
    as_high = all(a >= b for a, b in zip(points[one], points[other], strict=True))
    return as_high and (one < other or tuple(points[one]) != tuple(points[other]))


def spread(points: Sequence[Point], count: int) -> list[int]:
    """Return at most ``count`` points of a front: the best by each objective, then those farthest from the others.

    Distances are Euclidean, with each objective scaled by its range over the front. On a tie, the first point is taken.
    A larger ``count`` only appends points.

    Example:
        >>> spread([(0.5, 0.9), (0.6, 0.85), (0.61, 0.84), (0.7, 0.7)], 3)
        [3, 0, 2]
    """
    if not points:
        return []
    ranges = [max(values) - min(values) or 1.0 for values in zip(*points, strict=True)]
    scaled = [[value / size for value, size in zip(point, ranges, strict=True)] for point in points]
    best = [max(range(len(points)), key=lambda i: (points[i][k], -i)) for k in range(len(ranges))]
    kept = list(dict.fromkeys(best))
    while len(kept) < min(count, len(points)):
        rest = [i for i in range(len(points)) if i not in kept]
        kept.append(max(rest, key=lambda i: (min(math.dist(scaled[i], scaled[j]) for j in kept), -i)))
    return kept[:count]


def hypervolume(points: Sequence[Point]) -> float:
    """Return the volume that the points dominate, above 0 in every objective.

    Example:
        >>> round(hypervolume([(0.5, 0.9), (0.7, 0.8)]), 6)
        0.61
    """
    rest = sorted((point for point in points if min(point) > 0), key=lambda point: -point[-1])
    if not rest:
        return 0.0
    if len(rest[0]) == 1:
        return rest[0][0]
    heights = [point[-1] for point in rest] + [0.0]
    # A slab of the last objective is dominated by the points that reach its upper end.
    slabs = ((heights[i] - heights[i + 1], rest[: i + 1]) for i in range(len(rest)))
    return sum(height * hypervolume([point[:-1] for point in above]) for height, above in slabs if height > 0)
