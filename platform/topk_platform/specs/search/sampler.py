"""The samplers that choose an arm's next values, as plain data.

:mod:`topk_platform.protocol.search.samplers` builds them.

Each class also holds what the search needs:

- ``random``: how many trials after the first are drawn at random before the sampler chooses;
- ``most_objectives``: the number of metrics by which it can search at once, or None for any number;
- ``packages``: the packages that it needs and whose versions may change what it suggests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, get_args

from topk_platform.errors import unknown_name
from topk_platform.specs.checks import check
from topk_platform.specs.fields import Checked, Count, Rule, Several, Share, Whole, check_fields, one_of
from topk_platform.specs.search.active import active
from topk_platform.specs.search.space import Choice, Dimension, Int, Scalar

__all__ = ["GP", "NSGAII", "QMC", "TPE", "CmaEs", "Grid", "OptunaSampler", "Random"]

_Reference = Annotated[str, Rule("package.module:attribute", lambda value: ":" in value)]


class _Usual(Checked):
    most_objectives: ClassVar[int | None] = None
    packages: ClassVar[tuple[str, ...]] = ("optuna",)


@dataclass(frozen=True)
class Random(_Usual):
    """Random search: every trial is drawn independently of all others."""

    random: ClassVar[float] = math.inf


@dataclass(frozen=True)
class QMC(_Usual):
    """A sequence that fills the space more evenly than draws at random; trial n takes its n-th point.

    Dimensions that are not always active are drawn at random.

    Args:
        kind: ``"sobol"`` (Sobol' 1967) or ``"halton"`` (Halton 1960).
        scramble: Whether the sequence is shuffled, differently for every arm.
    """

    kind: Annotated[str, one_of("sobol", "halton")] = "sobol"
    scramble: bool = True
    random: ClassVar[float] = 0
    packages: ClassVar[tuple[str, ...]] = ("optuna", "scipy")


@dataclass(frozen=True)
class Grid(_Usual):
    """Every combination of some values of each dimension; the first trial's values come first.

    If the budget has more trials than the grid has points, the remaining trials are drawn at random.

    Args:
        points: The number of values that each ``Float`` and ``Int`` takes, evenly spaced from end to end, in the
            logarithm if it is sampled so; or a mapping from each dimension to its number of values or to the values.
            A ``Choice`` takes all of its options by default.

    Example:
        >>> from topk_platform.specs import Float
        >>> grid = Grid({"tau": 3, "samples": (1, 10)})
        >>> grid.combinations({"tau": Float(0.01, 1, log=True), "samples": Int(1, 50)}, {"tau": 1.0, "samples": 5})[:3]
        [{'tau': 1.0, 'samples': 5}, {'tau': 0.01, 'samples': 1}, {'tau': 0.01, 'samples': 10}]
    """

    points: Several | Mapping[str, Count | Sequence[Scalar]]
    random: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.points, Mapping):
            kept = {n: p if isinstance(p, int) else tuple(p) for n, p in self.points.items()}
            object.__setattr__(self, "points", kept)

    def combinations(
        self, space: Mapping[str, Dimension], first: Mapping[str, Scalar]
    ) -> list[dict[str, Scalar]]:
        """Return the values of the trials in order, without repeats; the first trial's values come first.

        Args:
            space: The space; values of dimensions that are not active are left out.
            first: The first trial's values.

        Raises:
            UserError: if the grid names an unknown dimension, lacks a ``Float`` or ``Int``, or has a value outside of
                its dimension.
        """
        for name in self.points if isinstance(self.points, Mapping) else ():
            if name not in space:
                raise unknown_name("dimension in Grid.points", name, space)
        values = {name: self._values(name, dimension) for name, dimension in space.items()}
        points = [active(space, first)]
        points += [
            active(space, dict(zip(values, taken, strict=True)))
            for taken in itertools.product(*values.values())
        ]
        return [dict(items) for items in dict.fromkeys(tuple(point.items()) for point in points)]

    def _values(self, name: str, dimension: Dimension) -> tuple[Scalar, ...]:
        points = self.points.get(name) if isinstance(self.points, Mapping) else self.points
        if isinstance(points, int) or points is None:
            if isinstance(dimension, Choice):
                return dimension.options
            check(
                points is not None,
                f"Grid.points must give the number of values of {name!r}, or the values, got neither",
            )
            return _spread(
                dimension.low, dimension.high, dimension.log, int(points or 0), isinstance(dimension, Int)
            )
        outside = [value for value in points if not dimension.holds(value)]
        check(not outside, f"Grid.points[{name!r}] must lie in {dimension}, got {outside}")
        return tuple(dimension.canonical(value) for value in points)


def _spread(low: float, high: float, log: bool, count: int, whole: bool) -> tuple[Scalar, ...]:
    """Return ``count`` values from ``low`` to ``high``, both included; whole numbers occur only once."""
    shares = [step / (count - 1) for step in range(count)] if count > 1 else [0.0]
    inner = [
        math.exp(math.log(low) + share * math.log(high / low)) if log else low + share * (high - low)
        for share in shares
    ]
    values = [low, *inner[1:-1], high][:count]
    return tuple(dict.fromkeys(map(round, values))) if whole else tuple(values)


@dataclass(frozen=True)
class TPE(_Usual):
    """A tree of Parzen estimators (Bergstra et al. 2011) over all dimensions together, after random draws.

    Dimensions that are not always active are modelled in groups of those that are active together.

    Args:
        random: How many trials after the first are drawn at random.
        multivariate: Whether dimensions are modelled together, or each by itself.
        candidates: The number of draws, of which the one with the largest expected improvement is taken.
    """

    random: Whole = 5
    multivariate: bool = True
    candidates: Count = 24


@dataclass(frozen=True)
class CmaEs(_Usual):
    """Covariance matrix adaptation (Hansen and Ostermeier 2001) over ``Float`` and ``Int``, after random draws.

    A ``Choice``, and dimensions that are not always active, are drawn at random. A generation learns from its completed
    trials.

    Args:
        random: How many trials after the first are drawn at random.
        population: The number of trials in a generation; None: ``4 + ⌊3 ln d⌋`` for d dimensions.
        margin: Whether whole numbers keep a margin of probability, so that none is lost (Hamano et al. 2022).
    """

    random: Whole = 5
    population: Several | None = None
    margin: bool = False
    most_objectives: ClassVar[int | None] = 1
    packages: ClassVar[tuple[str, ...]] = ("optuna", "cmaes")


@dataclass(frozen=True)
class GP(_Usual):
    """Bayesian optimisation with a Gaussian process and expected improvement, after random draws.

    Trials that run at the same time are kept apart from each other. Dimensions that are not always active are drawn at
    random. A suggestion takes a tenth of a second or more.

    Args:
        random: How many trials after the first are drawn at random.
    """

    random: Whole = 5
    packages: ClassVar[tuple[str, ...]] = (
        "optuna",
        "scipy",
        "greenlet",
    )  # with another version of greenlet, the search differs


@dataclass(frozen=True)
class NSGAII(_Usual):
    """A genetic algorithm with elites (Deb et al. 2002).

    Args:
        population: The number of completed trials in a generation; the first generation is drawn at random.
        crossover: The probability that a trial has two parents, in [0, 1].
        mutation: The probability that a value is drawn again, in [0, 1]; None: 1 / d for d dimensions.
    """

    population: Several = 8
    crossover: Share = 0.9
    mutation: Share | None = None
    random: ClassVar[float] = 0


@dataclass(frozen=True)
class OptunaSampler(_Usual):
    """Any sampler of Optuna, of OptunaHub, or of your own.

    The sampler is made again for each trial, and the earlier trials are replayed in their order. So the attributes that
    it stored with a trial or a study are available, but the state in the sampler object itself is lost.
    :class:`topk_platform.testing.SamplerContract` tests whether that is enough for a sampler.

    Args:
        reference: ``package.module:attribute`` of a class or function that returns an ``optuna.samplers.BaseSampler``.
            It is called with ``seed`` if it has that parameter.
        options: Its other keyword arguments.
        random: How many trials after the first are drawn at random.

    Example:
        >>> OptunaSampler("optuna.samplers:NSGAIIISampler", {"population_size": 10}).random
        0
    """

    reference: _Reference
    options: Mapping[str, Scalar] = field(default_factory=dict)
    random: Whole = 0


Sampler = Random | QMC | Grid | TPE | CmaEs | GP | NSGAII | OptunaSampler
"""All samplers."""

SAMPLERS: tuple[type[Sampler], ...] = get_args(Sampler)
