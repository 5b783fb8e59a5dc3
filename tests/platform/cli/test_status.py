"""The table of ``topk status`` about early and final validation."""

from __future__ import annotations

from pathlib import Path

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.cli.status import _early_table
from topk_platform.records import Ledger, Recorded
from topk_platform.specs import EpochRecord, Trial, TrialRecord
from topk_platform.testing import fake_run

EARLY = {"cross_entropy": (0.1, 0.2, 0.3, 0.4, 0.5), "focal": (0.5, 0.1, 0.4, 0.2, 0.3)}


def a_ledger(folder: Path) -> Ledger:
    """Five trials of two losses, the n-th of which ends at n tenths, and had at first what ``EARLY`` says."""
    rate = {"learning_rate": Float(0.01, 1)}
    losses = [Loss(name, rate, {"learning_rate": 0.1}) for name in EARLY] + [Loss("topk_hinge")]
    arms = grid([Regime("r", "digits")], [Model("mlp")], losses, k=1, recipe=Recipe(4))
    study = Study("s", arms, topk=(1,), trials=5, seeds=1)

    def end(trial: Trial) -> TrialRecord:
        early = EARLY.get(trial.arm.loss.label, (0.0,) * 5)[trial.number]
        values = {1: early, 2: trial.number / 10, 4: trial.number / 10}
        epochs = tuple(
            EpochRecord(e, 1.0, dict.fromkeys(study.metrics, v), 0.1, 0.1) for e, v in values.items()
        )
        return TrialRecord(trial, "completed", "", epochs[-1].validation, None, epochs)

    return fake_run(study, folder, end)


def test_each_arm_that_searches_has_a_row(tmp_path: Path) -> None:
    table = _early_table(Recorded.read(a_ledger(tmp_path)).histories.values())
    assert table is not None
    cells = list(zip(*(column.cells for column in table.columns), strict=True))
    assert cells == [
        ("r/mlp/cross_entropy", "5", "1: 1.00, 2: 1.00"),
        ("r/mlp/focal", "5", "1: -0.30, 2: 1.00"),
    ]
    assert _early_table([]) is None
