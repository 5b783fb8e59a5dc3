"""What a driver holds while its trials run."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid, run
from topk_platform.records.table.rows import RowViews
from topk_platform.running.driver.launching import Cluster
from topk_platform.running.driver.retries import Faults
from topk_platform.running.preflight.checks import check_study
from topk_platform.testing import fake_run


def a_study(seeds: int) -> Study:
    losses = [Loss("cross_entropy", space={"learning_rate": Float(0.01, 1.0)}, first={"learning_rate": 0.1})]
    arms = grid([Regime("clean", "digits")], [Model("linear")], losses, k=3, recipe=Recipe(1))
    return Study("s", arms, topk=(3,), trials=2, seeds=seeds)


def rows_held() -> int:
    """Return how many rows of tables are in memory; each of them keeps its whole table there."""
    row = type(next(iter(RowViews(pa.table({"key": ["a"]})))))
    gc.collect()
    return sum(isinstance(one, row) for one in gc.get_objects())


def test_it_frees_the_rows_of_the_trials_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study of a million trials has some gigabytes of them."""
    ended = a_study(seeds=2)
    fake_run(ended, tmp_path, lambda trial: 0.5, identities=check_study(ended))
    before, held = rows_held(), list[int]()

    def train(*_: Any) -> Faults:
        held.append(rows_held() - before)
        return Faults()

    monkeypatch.setattr(
        "topk_platform.running.driver.execution.on_cluster", lambda *_: nullcontext(Cluster())
    )
    monkeypatch.setattr("topk_platform.running.driver.tuning.tune_trials", train)
    summary = run(a_study(seeds=3), store=tmp_path, track="none", progress=False, mixed=True)
    assert (summary.left, held) == (1, [0])  # the trials that have ended count
