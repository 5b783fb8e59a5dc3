"""Pareto fronts of arms searched by several metrics: the confirmed configurations, and the hypervolume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topk_platform.protocol.ended import Ended
from topk_platform.protocol.fronts import hypervolume
from topk_platform.records import ArmResults, Row
from topk_platform.results.statistics import Estimate, estimate
from topk_platform.specs import Scalar

__all__ = ["Front", "FrontPoint", "front_of", "front_rows"]


@dataclass(frozen=True)
class FrontPoint:
    """One configuration of a front.

    Args:
        search: Which of the arm's searches chose it, from 0.
        values: Its values.
        validation: Its validation metrics, in the order of the front's.
        test: Its test metrics over the completed seeds; None for a metric without a completed seed.
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
        points: The points of one search after the other, the best by the first metric first.
        volume: The hypervolume above 0 of the test metrics of a seed's runs, over the seeds whose runs were all
            completed; None if there is no such seed.
    """

    metrics: tuple[str, ...]
    points: tuple[FrontPoint, ...]
    volume: Estimate | None


def front_of(results: ArmResults) -> Front | None:
    """Return the front of an arm that is searched by several metrics; None for other arms.

    Args:
        results: The arm's results that count.
    """
    arm = results.arm
    if len(arm.objectives) == 1 or not arm.is_searched:
        return None
    points = [
        _point(results, search, ended) for search, chosen in enumerate(results.chosen) for ended in chosen
    ]
    return Front(arm.objectives, tuple(points), estimate(_volumes(results)))


def _point(results: ArmResults, search: int, ended: Ended) -> FrontPoint:
    confirmed, objectives = results.history.confirm, results.arm.objectives
    mine = results.arm.repeats.seeds_of(search, results.last)
    rows = [row for seed in mine if (row := confirmed.get((ended.number, seed))) is not None]
    tests = [_tested(row, objectives) for row in rows if row["status"] == "completed"]
    test = tuple(estimate([values[k] for values in tests if values]) for k in range(len(objectives)))
    return FrontPoint(search, ended.values, ended.objectives, test)


def _tested(row: Row, metrics: Sequence[str]) -> tuple[float, ...]:
    """Return a run's test metrics; empty if its regime lacks one of them."""
    values = tuple(row[f"test.{metric}"] for metric in metrics)
    return () if None in values else values


def _volumes(results: ArmResults) -> list[float]:
    arm, volumes = results.arm, []
    for seed, rows in results.confirmed_points().items():
        tests = [_tested(row, arm.objectives) for row in rows if row["status"] == "completed"]
        if all(tests) and len(tests) == len(results.chosen[arm.repeats.search_of_seed(seed)]) > 0:
            volumes.append(hypervolume(tests))
    return volumes


def front_rows(
    fronts: Mapping[tuple[str, str], Front],
) -> list[tuple[str, str, int, Mapping[str, Scalar], str, float, Estimate | None]]:
    """Return a row for each metric of each point: row, column, search, values, metric, validation and test."""
    return [
        (*key, point.search, point.values, metric, point.validation[k], point.test[k])
        for key, front in fronts.items()
        for point in front.points
        for k, metric in enumerate(front.metrics)
    ]
