"""Histories of arms, runs and tables with given test results, of trials that nobody trained."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topk_platform import Arm, Study
from topk_platform.records.history import ArmHistory
from topk_platform.records.per_image import Ranks
from topk_platform.results import Table, build_table
from topk_platform.results.runs import Runs
from topk_platform.specs import Phase, Trial

__all__ = ["make_history", "make_row", "make_runs", "make_table"]

Tests = float | Mapping[str, float | None]
"""A run's test results by metric, or one for all metrics."""


def make_row(study: Study, arm: Arm, number: int, seed: int, tests: Tests = math.nan) -> dict[str, Any]:
    """Return a row as a ledger has it: of a search trial, or with a seed of a confirmation."""
    phase: Phase = "confirm" if seed else "search"
    of_arm = (study.name, study.arm_id(arm), arm, study.topk)
    trial = Trial(*of_arm, phase, number, seed, 0, arm.loss.first, "f", "c")
    results = tests if isinstance(tests, Mapping) else dict.fromkeys(study.metrics, tests)
    return {
        "key": trial.key, "arm": arm.name, "arm_id": trial.arm_id, "phase": phase, "number": number, "seed": seed,
        "status": "completed", "reason": "why", "config": trial.to_json(), "values": json.dumps(trial.parameters),
        "train_seconds": 1.0, "code_version": "c", "dataset_fingerprint": "f",
        "versions": '{"machine": "m", "torch": "2.15.0"}',
        **{f"test.{metric}": value for metric, value in results.items()},
    }  # fmt: skip


def make_history(study: Study, arm: Arm, tests: Sequence[Tests], chosen: int = 0) -> ArmHistory:
    """Return two search trials of an arm, where it searches, and a confirmation of the chosen one for each result."""
    search = {n: make_row(study, arm, n, 0) for n in range(2)} if arm.is_searched else {}
    confirm = {(chosen, s): make_row(study, arm, chosen, s, value) for s, value in enumerate(tests, 1)}
    curves = {row["key"]: {1: 0.5 + 0.1 * (n == chosen)} for n, row in search.items()}
    return ArmHistory(arm, search, confirm, curves)  # type: ignore[arg-type]


def make_table(study: Study, tests: Callable[[Arm], Sequence[Tests]]) -> Table:
    """Return the table of a study whose arms have these test results, by seed."""
    return build_table(study, {study.arm_id(arm): make_history(study, arm, tests(arm)) for arm in study.arms})


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
