"""The samplers that choose an arm's next values and the rules that stop its trials early, as plain data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, get_args

from topk_platform.errors import unknown_name
from topk_platform.references import reference_of
from topk_platform.specs.checks import check
from topk_platform.specs.fields import Checked, Count, Inside, Several, Share, Whole, check_fields
from topk_platform.specs.space import Choice, Dimension, Int, Scalar, active

__all__ = ["TPE", "Grid", "NoPruning", "OptunaSampler", "OwnPruner", "Quantile", "Random"]


@dataclass(frozen=True)
class Random:
    """Random search: every trial is drawn independently of all others."""

    random: ClassVar[float] = math.inf


@dataclass(frozen=True)
class Grid:
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
class TPE(Checked):
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
class OptunaSampler:
    """Any sampler of Optuna, of OptunaHub, or of your own.

    The sampler is made again for each trial, and the earlier trials are replayed in their order. So the attributes that
    it stored with a trial or a study are available, but the state in the sampler object itself is lost.
    :class:`topk_platform.testing.SamplerContract` tests whether that is enough for a sampler.

    Args:
        reference: A class of ``optuna.samplers``, or its name; or a class or function of your own that returns an
            ``optuna.samplers.BaseSampler``, or its reference ``package.module:attribute``. It is called with ``seed``
            if it has that parameter.
        options: Its other keyword arguments.
        random: How many trials after the first are drawn at random.

    Example:
        >>> OptunaSampler("NSGAIIISampler", {"population_size": 10}).random
        0
    """

    reference: str
    options: Mapping[str, Scalar] = field(default_factory=dict)
    random: Whole = 0

    def __post_init__(self) -> None:
        name = reference_of("sampler", self.reference)
        if not isinstance(self.reference, str) and str(name).startswith("optuna.samplers."):
            name = name.rpartition(":")[2]  # these classes lie in modules of Optuna's own
        object.__setattr__(self, "reference", name)
        check_fields(self)


Sampler = Random | Grid | TPE | OptunaSampler
"""All samplers."""

SAMPLERS: tuple[type[Sampler], ...] = get_args(Sampler)


@dataclass(frozen=True)
class NoPruning:
    """No pruning: every search trial trains to its end."""

    rungs: ClassVar[tuple[float, ...]] = ()


@dataclass(frozen=True)
class Quantile(Checked):
    """Stop a search trial that is behind its arm's earlier trials.

    At each rung, a trial is stopped if its validation metric is below the given quantile of the values that the earlier
    trials of the same arm had at this rung.

    Args:
        rungs: Fractions of the epochs, in ``(0, 1)``, at which trials are compared.
        quantile: In ``[0, 1]``; 0.5 is the median.
        startup: How many earlier trials must have reached a rung before anything is stopped there.
    """

    rungs: tuple[Inside, ...] = (0.25, 0.5)
    quantile: Share = 0.5
    startup: Count = 4


@dataclass(frozen=True)
class OwnPruner:
    """Stop a search trial by a rule of your own.

    Args:
        reference: A function ``threshold(history, rung)``, or its reference ``package.module:attribute``. ``history``
            holds the arm's earlier trials, each with its ``status``, its ``values`` and its ``curve``, the validation
            metric by epoch; ``rung`` is the epoch. It returns the value below which a trial is stopped there, or None,
            and must depend on nothing else.
        rungs: Fractions of the epochs, in ``(0, 1)``, at which trials are compared.
    """

    reference: str
    rungs: tuple[Inside, ...] = (0.25, 0.5)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reference", reference_of("pruner", self.reference))
        check_fields(self)


Pruner = NoPruning | Quantile | OwnPruner
"""All rules by which search trials are stopped."""

PRUNERS: tuple[type[Pruner], ...] = get_args(Pruner)
