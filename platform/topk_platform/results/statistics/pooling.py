"""The luck of an arm's search, estimated from all arms' searches where searches are repeated."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

__all__ = ["Luck", "Prior", "moderated", "pooled", "prior_of"]

Numbers = npt.NDArray[np.float64]

_Column = TypeVar("_Column", bound=Hashable)
_Arm = TypeVar("_Arm", bound=Hashable)

_ZERO = 1e-9
_ALONE = 1e-9  # a column is not used for the weight if an arm's means differ by less between searches
_CLOSE = 1e-8  # relative, where an iteration ends
_ROUNDS = 200
_TURNS = 8


@dataclass(frozen=True)
class Prior:
    """The variance of one search's mean, as other arms' searches estimate it.

    Args:
        variance: The variance of a search's mean, on average over the arms.
        freedom: The degrees of freedom of ``variance``.
        weight: How many degrees of freedom it is worth beside an arm's own: few if arms differ much in their luck.
    """

    variance: float
    freedom: float
    weight: float


@dataclass(frozen=True)
class Luck:
    """The luck of an arm's searches, estimated from all arms with the same data and the same network: its column.

    Args:
        column: The column's name.
        level: The prior for the arm's own mean; it contains searches and seeds.
        beside: The prior for a difference of arms' means; it leaves out the part that the seeds add equally to all
            arms.
    """

    column: Hashable
    level: Prior
    beside: Prior


def pooled(
    columns: Mapping[_Column, Mapping[_Arm, Sequence[float]]],
) -> dict[_Arm, Luck]:
    """Return the luck of each arm's searches, estimated from all arms.

    In a column with M arms and R searches, the means ``y_ar`` are split into the arm, the search's seeds, which all
    arms share, and the rest. The pool's variance is the most likely scale of the arms' mean squares of the rest, so
    that one arm with far more luck than the others hardly moves it. How far arms differ in their luck is estimated over
    all columns from the spread of the logarithms of these mean squares, beyond what chance explains. It is taken at the
    upper end of its standard error, so that a small table borrows less. Columns with a single arm are left out.

    Args:
        columns: The means of each arm's searches, by column and arm; all arms of a column have equally many, two or
            more.

    Source:
        Smyth, Linear Models and Empirical Bayes Methods for Assessing Differential Expression, 2004, section 6.2.
    """
    shapes: dict[tuple[int, int], dict[_Column, list[Sequence[float]]]] = {}
    for name, arms in columns.items():
        rows = list(arms.values())
        if len(rows) > 1 and len(rows[0]) > 1:
            shapes.setdefault((len(rows), len(rows[0])), {})[name] = rows
    stacks = [np.array(list(tables.values()), float) for tables in shapes.values()]
    weight = _weight(stacks)
    result: dict[_Arm, Luck] = {}
    for names, stack in zip(shapes.values(), stacks, strict=True):
        for name, (level, beside) in zip(names, _priors(stack, weight), strict=True):
            result |= {arm: Luck(name, level, beside) for arm in columns[name]}
    return result


class _Split(NamedTuple):
    """Means of searches of T columns of one shape, split into the arm, what all arms share, and the rest.

    Args:
        common: What the seeds of each search add to all arms, ``(T, R)``.
        squares: The mean square of each arm's rest, an unbiased estimate of its variance, ``(T, M)``.
        usual: The variance around which the arms' own variances lie, ``(T,)``.
    """

    common: Numbers
    squares: Numbers
    usual: Numbers


def _split(tables: Numbers, weight: float) -> _Split:
    """Split tables ``(T, M, R)``, arms with less luck weighing more in what all arms share.

    With weights ``w_a`` that sum to 1 and are inverse to the arms' variances, the sum of squares of the rest is
    ``(R - 1) (1 - w_a) σ_a²`` in expectation. If the pool is worth d₀ degrees of freedom and a mean square d, ``s_a² /
    s₀²`` follows Fisher's F with (d, d₀) degrees of freedom. The most likely s₀², ``usual``, is the mean of ``v_a
    s_a²`` with ``v_a = (d + d₀) / (d s_a² / s₀² + d₀)``. All weights are equal if arms do not differ in their luck. An
    arm with far more luck than others adds little to both.
    """
    own = tables.shape[2] - 1
    centred = tables - tables.mean(2, keepdims=True)
    parts = np.ones(tables.shape[:2])
    for _ in range(_ROUNDS):
        shares = parts / parts.sum(1, keepdims=True)
        common = (shares[:, :, None] * centred).sum(1)
        # If one arm has no luck and the others have much, its share is 1.
        squares = ((centred - common[:, None]) ** 2).sum(2) / (own * np.maximum(1 - shares, _CLOSE))
        usual = (parts * squares).mean(1)
        if math.isinf(weight) or not weight:
            break
        scale = np.where(usual > 0, usual, 1)[:, None]
        before, parts = parts, (own + weight) / (own * squares / scale + weight)
        if np.abs(parts - before).max() < _CLOSE:
            break
    return _Split(common, squares, usual)


def _priors(tables: Numbers, weight: float) -> Iterator[tuple[Prior, Prior]]:
    _, arms, searches = tables.shape
    split = _split(tables, weight)
    # The information on the scale of Fisher's F, beside that on the scale of a chi square.
    known = 1.0 if math.isinf(weight) or not weight else weight / (weight + searches + 1)
    freedom = max((arms - 1) * (searches - 1) * known, 1.0)
    for common, usual in zip(split.common, split.usual.tolist(), strict=True):
        parts = np.array([float(common.var(ddof=1)), (arms - 1) * usual / arms])
        whole = float(parts.sum())
        squares = float((parts**2 / np.array([searches - 1, freedom])).sum())
        yield Prior(whole, whole**2 / squares if whole else freedom, weight), Prior(usual, freedom, weight)


def _weight(stacks: Sequence[Numbers]) -> float:
    """Return how many degrees of freedom the pool is worth: infinite where arms do not differ in their luck.

    An arm with far more luck than others adds to what seems common to all, and hides how much they differ. The split
    that avoids this needs the weight. Both are therefore computed in turn, and the weight never rises.
    """
    weight = math.inf
    for _ in range(_TURNS):
        before = weight
        weight = min(before, _spread([_split(tables, before).squares for tables in stacks], stacks))
        if weight >= before * (1 - _CLOSE):
            break
    return weight


def _spread(squares: Sequence[Numbers], stacks: Sequence[Numbers]) -> float:
    """Return the weight that the spread of the mean squares' logarithms shows, beyond what chance explains."""
    within, count, chance = 0.0, 0, 0.0
    for of_arms, tables in zip(squares, stacks, strict=True):
        arms, own = tables.shape[1], tables.shape[2] - 1
        if arms < 3:
            continue
        known = of_arms[of_arms.min(1) * own > _ALONE**2]
        within += float(np.log(known).var(1, ddof=1).sum()) * (arms - 1)
        chance += _trigamma(own / 2) * (arms - 1) * len(known)
        count += (arms - 1) * len(known)
    if not count:
        return 0.0
    expected = chance / count
    excess = within / count - expected + expected * math.sqrt(_NOISE / count)
    return 2 * _inverse_trigamma(excess) if excess > 0 else math.inf


_NOISE = 4.4
"""The relative variance of the sample variance of logarithms of chi squares, times their number."""


def _trigamma(x: float) -> float:
    return float(special.polygamma(1, x))


def _inverse_trigamma(value: float) -> float:
    """Return x with ``trigamma(x) = value``, by Newton's method on 1 / trigamma, which is nearly straight."""
    x = 0.5 + 1 / value
    for _ in range(50):
        now = _trigamma(x)
        step = now * (1 - now / value) / float(special.polygamma(2, x))
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x


def prior_of(parts: Sequence[tuple[float, Luck]]) -> Prior:
    """Return the prior of a weighted sum of searched arms' means, one search of each.

    Args:
        parts: The weights of the arms, with their luck.
    """
    columns: dict[Hashable, list[tuple[float, Luck]]] = {}
    for weight, luck in parts:
        columns.setdefault(luck.column, []).append((weight, luck))
    result = [_of_column(of_column) for of_column in columns.values()]
    squares = sum(prior.variance**2 / prior.freedom for prior in result)
    variance = sum(prior.variance for prior in result)
    freedom = variance**2 / squares if squares else min(prior.freedom for prior in result)
    return Prior(variance, freedom, result[0].weight)


def _of_column(parts: Sequence[tuple[float, Luck]]) -> Prior:
    """Return the prior of a column's part; if its weights sum to 0, the part that seeds add to all arms cancels."""
    luck = parts[0][1]
    of_one = luck.beside if abs(sum(weight for weight, _ in parts)) < _ZERO else luck.level
    return Prior(sum(weight**2 for weight, _ in parts) * of_one.variance, of_one.freedom, of_one.weight)


def moderated(variance: float, freedom: float, prior: Prior) -> tuple[float, float]:
    """Return an arm's variance, drawn up towards the pool's, with its degrees of freedom.

    The pool has the variance ``s₀²``, worth ``d₀`` degrees of freedom; the arm has its own variance ``s²`` with d. The
    result is ``(d₀ s₀² + d s²) / (d₀ + d)``, but never less than s²: an arm that shows more luck than others keeps it.
    The result's degrees of freedom ν follow from ``1/ν = 1/max(d₀, d) + ω²/f``, but ν is at least d. Here ``ω = d₀ /
    (d₀ + d)`` is the pool's share, and f are the degrees of freedom of ``s₀²``, which is itself an estimate. Smyth's
    ``d₀ + d`` in place of the maximum gives too many false marks where losses differ much in their luck and it is not
    normal.

    Example:
        >>> moderated(0.25, 2, Prior(1.0, 12, math.inf)), moderated(0.25, 2, Prior(1.0, 12, 0.0))
        ((1.0, 12.0), (0.25, 2.0))
        >>> moderated(4.0, 2, Prior(1.0, 12, math.inf))
        (4.0, 12.0)
    """
    share = 1.0 if math.isinf(prior.weight) else prior.weight / (prior.weight + freedom)
    result = max(share * prior.variance + (1 - share) * variance, variance)
    return result, max(1 / (1 / max(freedom, prior.weight) + share**2 / prior.freedom), freedom)
