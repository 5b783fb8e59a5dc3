"""How a study's arms were tuned: the gain by trials, how many are enough, and which parameters matter.

Everything is based on validation results; the test set is not used.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from topk_platform.errors import UserError
from topk_platform.protocol import Ended, spearman
from topk_platform.records import ArmResults
from topk_platform.results.from_store import Held, read
from topk_platform.results.range_edges import Edge, edges
from topk_platform.specs import Arm, Choice, Dimension, Grid, Parameter, Scalar, Study
from topk_platform.specs.fields import check_call

__all__ = ["ArmTuning", "Curve", "Fixed", "Sensitivity", "Tuning", "tuning", "tuning_of"]

_LEAST = 5  # draws for a curve, trials for a correlation; an importance needs twice as many trials


@dataclass(frozen=True)
class Curve:
    """The expected best validation result of n trials drawn at random, for n from 1, as a fraction of 1.

    Args:
        expected: Its estimate.
        low: The lower end of its 95 % band, which holds for all n together.
        high: The upper end.
    """

    expected: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def enough(self, within: float) -> int:
        """Return the least n whose expected best result is within a tolerance of that of all trials.

        Args:
            within: The tolerance, as a fraction of 1.

        Example:
            >>> Curve((0.5, 0.68, 0.7), (0.0,) * 3, (1.0,) * 3).enough(0.03)
            2
        """
        return _first(self.expected, within)


@dataclass(frozen=True)
class Sensitivity:
    """The effect of a searched parameter on the validation result, by an arm's trials.

    Args:
        name: The parameter.
        importance: Its share, among all parameters, in explaining which trials are the best tenth (PED-ANOVA, Watanabe
            et al. 2023); None if fewer than ten trials were completed, or all results are equal.
        correlation: Spearman's correlation of value and result; None for fewer than five trials, if values have no
            order, or if one of the two is constant.
        best: The best result in each third of its range (of the logarithm, if the range is logarithmic), or for each
            option; None for a third or an option without a trial.
    """

    name: str
    importance: float | None
    correlation: float | None
    best: Mapping[str, float | None]


@dataclass(frozen=True)
class ArmTuning:
    """How one arm was tuned.

    Args:
        arm: Its name.
        metric: The validation metric that selects the configuration.
        trace: For each n from 1, the best result among the first n search trials of all its searches together.
        curve: The curve of its trials that were drawn independently at random; None if there are fewer than five.
        drawn: The number of these trials.
        sensitivities: The effects of the searched parameters.
        edges: Chosen values at an end of a range, each with the index of its search.
    """

    arm: str
    metric: str
    trace: tuple[float, ...]
    curve: Curve | None
    drawn: int
    sensitivities: tuple[Sensitivity, ...]
    edges: tuple[tuple[int, Edge], ...] = ()

    def enough(self, within: float) -> int | None:
        """Return the number of trials until the search was within a tolerance of its best; None if none completed."""
        return _first(self.trace, within) if self.trace and self.trace[-1] > 0 else None


@dataclass(frozen=True)
class Fixed:
    """An arm's validation result, with the value of a fixed parameter that differs between arms of the same loss.

    Args:
        column: ``regime/model``.
        loss: The loss's name.
        parameter: The parameter's name, such as ``"tau"``.
        value: The arm's value.
        metric: The validation metric.
        mean: The mean over the confirmed seeds.
        spread: Their standard deviation; NaN for one seed.
        n: The number of seeds.
    """

    column: str
    loss: str
    parameter: str
    value: Parameter
    metric: str
    mean: float
    spread: float
    n: int


@dataclass(frozen=True)
class Tuning:
    """How a study was tuned.

    Args:
        study: Its name.
        arms: The arms with an ended search trial.
        fixed: The results by fixed parameters that differ between arms.
    """

    study: str
    arms: tuple[ArmTuning, ...]
    fixed: tuple[Fixed, ...]

    def _repr_markdown_(self) -> str:
        from topk_platform.reports.tuning_text import tuning_to_markdown  # noqa: PLC0415 - imports this module

        return tuning_to_markdown(self)


def tuning(
    study: Study,
    *,
    store: str | Path = "runs",
    trials: int | None = None,
    only: str | Sequence[str] | None = None,
) -> Tuning:
    """Return how a study's arms were tuned, from their validation results in a store.

    The curves need independent draws, so they use only trials drawn at random: all trials of an arm that searches at
    random, otherwise those of its random phase. Trials stopped early count with their last validation; trials that
    diverged or failed count as 0. The bands are Learned-Miller and DeStefano's, exact for continuous results.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm, instead of the study's.
        only: A glob over the names of the arms, ``regime/model/loss``, or several.

    Raises:
        UserError: if the store holds nothing of the study.

    Source:
        Dodge et al., Show Your Work, EMNLP 2019; Lourie et al., Show Your Work with Confidence, NAACL 2024 (opda).
    """
    check_call(tuning, locals())
    shown = study.only(only) if only else study
    return tuning_of(read(study, store, trials, curves=True, needed=True), shown.arms)


def tuning_of(held: Held, shown: Collection[Arm]) -> Tuning:
    """Return how some arms were tuned, see :func:`tuning`.

    Args:
        held: The study's results, with the epochs of its trials.
        shown: The arms.
    """
    names = {arm.name for arm in shown}
    arms = [results for results in held.results.values() if results.arm.name in names]
    return Tuning(
        held.study.name,
        tuple(_tuned(results) for results in arms if results.history.search),
        tuple(_fixed(arms)),
    )


def _tuned(results: ArmResults) -> ArmTuning:
    arm, known = results.arm, results.history.ended()
    ended = [known[n] for n in sorted(known, key=arm.repeats.order) if results.state.counts(n)]
    drawn = [_result(trial) for trial in ended if _is_drawn(arm, trial)]
    best = np.maximum.accumulate([_result(trial) for trial in ended]).tolist() if ended else []
    curve = _curve(drawn) if len(drawn) >= _LEAST else None
    completed = [trial for trial in ended if trial.status == "completed"]
    shares = _importances(arm.loss.space, completed)
    sensitivities = tuple(
        Sensitivity(
            name,
            shares.get(name),
            _correlation(name, dimension, completed),
            _best(name, dimension, completed),
        )
        for name, dimension in arm.loss.space.items()
    )
    at_ends = tuple(
        (search, edge)
        for search, chosen in enumerate(results.chosen)
        for best_of_it in chosen[:1]
        for edge in edges(arm.loss, best_of_it.values)
    )
    return ArmTuning(arm.name, arm.metric, tuple(best), curve, len(drawn), sensitivities, at_ends)


def _result(trial: Ended) -> float:
    """Return a trial's validation result: the last one for a trial stopped early, 0 if there is none."""
    if trial.status == "completed":
        return trial.objective
    return trial.curve[max(trial.curve)] if trial.status == "pruned" and trial.curve else 0.0


def _is_drawn(arm: Arm, trial: Ended) -> bool:
    """Return whether a trial was drawn at random, independently, and not given by the study or another arm's choice."""
    sampler = arm.protocol.sampler
    return not isinstance(sampler, Grid) and 0 < arm.repeats.position(trial.number) <= sampler.random


def _curve(results: Sequence[float]) -> Curve:
    from opda.nonparametric import EmpiricalDistribution  # noqa: PLC0415 - scipy.stats, half a second

    numbers = np.arange(1, len(results) + 1)
    with warnings.catch_warnings():
        # Equal results, which are common on a small split, only make the bands wider than necessary.
        warnings.filterwarnings("ignore", "Duplicates detected", RuntimeWarning)
        bands = EmpiricalDistribution.confidence_bands(
            np.asarray(results, float),
            0.95,
            a=0.0,
            b=1.0,
            method="ld_equal_tailed",
            n_jobs=1,
            # The bands are simulated; a fixed seed gives the same bands for the same results.
            generator=np.random.default_rng(0),
        )
    # A higher CDF means lower results, so the CDF's upper band gives the curve's lower end.
    high, point, low = (cdf.average_tuning_curve(numbers).tolist() for cdf in bands)
    return Curve(tuple(point), tuple(low), tuple(high))


def _first(results: Sequence[float], within: float) -> int:
    return next(n for n, result in enumerate(results, 1) if result >= results[-1] - within - 1e-12)


def _importances(space: Mapping[str, Dimension], trials: Sequence[Ended]) -> dict[str, float]:
    """Return each parameter's importance; empty for fewer than ten trials, or if all results are equal."""
    if len(trials) < 2 * _LEAST or len({trial.objective for trial in trials}) < 2:
        return {}
    from topk_platform.results.importances import importances  # noqa: PLC0415 - Optuna, a second

    return importances(space, trials)


def _ordered(dimension: Dimension, value: Scalar) -> float | None:
    if isinstance(dimension, Choice) or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return math.log(value) if dimension.log else float(value)


def _correlation(name: str, dimension: Dimension, trials: Sequence[Ended]) -> float | None:
    pairs = [
        (key, t.objective) for t in trials if (key := _ordered(dimension, t.values.get(name))) is not None
    ]
    return spearman(pairs) if len(pairs) >= _LEAST else None


def _best(name: str, dimension: Dimension, trials: Sequence[Ended]) -> dict[str, float | None]:
    if isinstance(dimension, Choice):
        return {
            str(option): max((t.objective for t in trials if t.values.get(name) == option), default=None)
            for option in dimension.options
        }
    low, high = (_ordered(dimension, end) or 0.0 for end in (dimension.low, dimension.high))
    thirds: list[list[float]] = [[], [], []]
    for trial in trials:
        key = _ordered(dimension, trial.values.get(name))
        if key is not None:
            thirds[min(int(3 * (key - low) / (high - low)), 2)].append(trial.objective)
    return {
        third: max(result, default=None)
        for third, result in zip(("low", "middle", "high"), thirds, strict=True)
    }


def _fixed(arms: Sequence[ArmResults]) -> list[Fixed]:
    """Return the results of arms that differ in one fixed parameter from others of their regime, model and loss."""
    values: dict[tuple[str, str, str], set[Parameter]] = {}
    keys = {id(h): f"{h.arm.regime.name}/{h.arm.model.label}" for h in arms}
    for h in arms:
        for parameter, value in h.arm.loss.fixed.items():
            values.setdefault((keys[id(h)], h.arm.loss.name, parameter), set()).add(value)
    fixed = []
    for h in arms:
        rows = h.confirmations().values()
        results = [row[f"validation.{h.arm.metric}"] for row in rows if row["status"] == "completed"]
        for parameter, value in h.arm.loss.fixed.items():
            key = (keys[id(h)], h.arm.loss.name, parameter)
            if results and len(values[key]) > 1:
                spread = stdev(results) if len(results) > 1 else math.nan
                fixed.append(Fixed(*key, value, h.arm.metric, mean(results), spread, len(results)))
    return fixed


def check_within(within: float) -> float:
    """Return a tolerance in points as a fraction of 1; raise ``UserError`` unless it is above 0."""
    if not 0 < within < 100:
        raise UserError(f"--within must be points above 0 and below 100, got {within}")
    return within / 100
