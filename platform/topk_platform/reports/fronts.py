"""Pareto fronts of arms searched by several metrics: the confirmed configurations, and the hypervolume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topk_platform.protocol.ended import Ended
from topk_platform.protocol.fronts import hypervolume
from topk_platform.records import ArmHistory, Row
from topk_platform.reports.statistics import Estimate, estimate
from topk_platform.specs import Scalar

__all__ = ["Front", "FrontPoint", "front_of", "front_rows"]


@dataclass(frozen=True)
class FrontPoint:
    """One configuration of a front.

    Args:
        search: Which of the arm's searches chose it, from 0.
        values: Its values.
        validation: Its validation metrics, in the order of the front's.
        test: Its test metrics over the seeds that were completed; None where there is none.
    """

    search: int
    values: Mapping[str, Scalar]
    validation: tuple[float, ...]
    test: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class Front:
    """The front that an arm's searches chose, and its test results.

    Args:
        metrics: The metrics that it is searched by.
        points: Search by search, each with the best by the first metric first.
        volume: The hypervolume above 0 of what a seed's runs reached in the test metrics, over the seeds of which all
            runs were completed; None where there is no such seed.
    """

    metrics: tuple[str, ...]
    points: tuple[FrontPoint, ...]
    volume: Estimate | None


def front_of(history: ArmHistory, trials: int, seeds: int) -> Front | None:
    """Return the front of an arm that is searched by several metrics; None for other arms.

    Args:
        history: The arm's.
        trials: How many search trials count.
        seeds: How many seeds count.
    """
    arm = history.arm
    if len(arm.objectives) == 1 or not arm.is_searched:
        return None
    points = [
        _point(history, search, ended, seeds)
        for search, chosen in enumerate(history.chosen(trials))
        for ended in chosen
    ]
    return Front(arm.objectives, tuple(points), estimate(_volumes(history, trials, seeds)))


def _point(history: ArmHistory, search: int, ended: Ended, seeds: int) -> FrontPoint:
    repeats = history.arm.repeats
    mine = repeats.seeds_of(search, seeds)
    rows = [row for seed in mine if (row := history.confirm.get((ended.number, seed))) is not None]
    tests = [_tested(row, history.arm.objectives) for row in rows if row["status"] == "completed"]
    test = tuple(
        estimate([values[k] for values in tests if values]) for k in range(len(history.arm.objectives))
    )
    return FrontPoint(search, ended.values, ended.objectives, test)


def _tested(row: Row, metrics: Sequence[str]) -> tuple[float, ...]:
    """Return a run's test metrics; none where a regime lacks one of them."""
    values = tuple(row[f"test.{metric}"] for metric in metrics)
    return () if None in values else values


def _volumes(history: ArmHistory, trials: int, seeds: int) -> list[float]:
    chosen, repeats = history.chosen(trials), history.arm.repeats
    found = []
    for seed, rows in history.confirmed_points(trials, seeds).items():
        tests = [_tested(row, history.arm.objectives) for row in rows if row["status"] == "completed"]
        if all(tests) and len(tests) == len(chosen[repeats.search_of_seed(seed)]) > 0:
            found.append(hypervolume(tests))
    return found


def front_rows(
    fronts: Mapping[tuple[str, str], Front],
) -> list[tuple[str, str, int, Mapping[str, Scalar], str, float, Estimate | None]]:
    """Return a row for each metric of each point: row, column, search, values, metric, validation and test."""
    return [
        (*place, point.search, point.values, metric, point.validation[k], point.test[k])
        for place, front in fronts.items()
        for point in front.points
        for k, metric in enumerate(front.metrics)
    ]
