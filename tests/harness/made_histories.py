"""Histories of arms, runs and tables with given test results, of trials that nobody trained."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from made_records import make_record

from topk_platform import Arm, Study
from topk_platform.protocol import Tally
from topk_platform.records.history import ArmHistory
from topk_platform.records.per_image import Ranks
from topk_platform.records.writer import trial_row
from topk_platform.results import Cell, Table, build_table, estimate
from topk_platform.results.cells import marked
from topk_platform.results.runs import Runs

__all__ = ["make_gains_table", "make_history", "make_row", "make_runs", "make_table"]

Tests = float | Mapping[str, float | None]
"""A run's test results by metric, or one for all metrics."""


def make_row(study: Study, arm: Arm, number: int, seed: int, tests: Tests = math.nan) -> dict[str, Any]:
    """Return a row as a ledger has it: of a search trial, or with a seed of a confirmation."""
    versions = {"machine": "m", "torch": "2.15.0"}
    record = make_record(study, number, arm=study.arms.index(arm), seed=seed, versions=versions)
    results = tests if isinstance(tests, Mapping) else dict.fromkeys(study.metrics, tests)
    return trial_row(replace(record, test=results))


def make_history(study: Study, arm: Arm, tests: Sequence[Tests], chosen: int = 0) -> ArmHistory:
    """Return two search trials of an arm, where it searches, and a confirmation of the chosen one for each result."""
    search = {n: make_row(study, arm, n, 0) for n in range(2)} if arm.is_searched else {}
    confirm = {(chosen, s): make_row(study, arm, chosen, s, value) for s, value in enumerate(tests, 1)}
    curves = {row["key"]: {1: 0.5 + 0.1 * (n == chosen)} for n, row in search.items()}
    return ArmHistory(arm, search, confirm, curves)  # type: ignore[arg-type]


def make_table(study: Study, tests: Callable[[Arm], Sequence[Tests]]) -> Table:
    """Return the table of a study whose arms have these test results, by seed."""
    return build_table(study, {study.arm_id(arm): make_history(study, arm, tests(arm)) for arm in study.arms})


JITTER = (0.0, 0.011, -0.007, 0.004, -0.008)
"""Of seeds, around a mean."""


def make_gains_table(
    study: Study,
    gains: Mapping[tuple[str, str], float],
    *,
    seeds: int = 5,
    lost: int = 0,
    covers: str = "seeds",
    **fields: Any,
) -> Table:
    """Return a table in top-3 of losses by regimes: by how much each is above the first loss, which has some 70 %.

    Args:
        study: The study, of one network.
        gains: The differences by loss and regime, 0 for those left out.
        seeds: How many confirmations have ended well.
        lost: How many more of the second loss have diverged.
        covers: What the intervals are said to cover.
        fields: Further fields of the table.
    """
    losses, regimes = (
        tuple(dict.fromkeys(names))
        for names in zip(*((arm.loss.label, arm.regime.name) for arm in study.arms), strict=True)
    )
    cells, rows = {}, {}
    for regime, loss in itertools.product(regimes, losses):
        diverged = lost if loss == losses[1] else 0
        apart = [gains.get((loss, regime), 0.0) + j for j in JITTER[:seeds]]
        value, difference = (
            replace(estimate(v), covers=covers) for v in ([0.7 + gap for gap in apart], apart)
        )
        cell = Cell(
            value,
            None if loss == losses[0] else difference,
            confirmed=Tally(completed=seeds, diverged=diverged),
        )
        cells[loss, regime, "top3"] = cell, Tally(completed=seeds)
        ends = ["completed"] * seeds + ["diverged"] * diverged
        rows[loss, regime] = {seed: {"status": status} for seed, status in enumerate(ends)}
    return Table(study, losses, regimes, marked(cells), {}, confirmations=rows, **fields)


def make_runs(
    values: Mapping[int, float] | Sequence[float],
    searches: int = 0,
    *,
    metrics: Sequence[str] = ("top3",),
    status: Mapping[int, str] | None = None,
    ranks: Mapping[int, Ranks] | None = None,
) -> Runs:
    """Return an arm's runs with these values of some metrics, by seed or for the seeds 1, 2, ..."""
    of_seeds = values if isinstance(values, Mapping) else dict(enumerate(values, 1))
    rows = {
        seed: {"status": (status or {}).get(seed, "completed"), "key": f"{seed}"}
        | dict.fromkeys([f"test.{metric}" for metric in metrics], value)
        for seed, value in of_seeds.items()
    }
    return Runs(rows, searches=searches, ranks=ranks or {})
