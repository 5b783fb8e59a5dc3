"""What a plan makes of the times of trials: which of them it expects to be pruned, and how long those take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from topk_platform import Arm, Float, Loss, Model, NoPruning, Protocol, Quantile, Recipe, Regime, Study
from topk_platform.running import timing
from topk_platform.running.planning import plan
from topk_platform.search import ArmBoard
from topk_platform.specs import Pruner


@pytest.fixture(autouse=True)
def hundred_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(boards: Sequence[ArmBoard]) -> dict[str, float]:
        return dict.fromkeys((board.arm_id for board in boards), 100.0)

    monkeypatch.setattr(timing, "trial_seconds", seconds)


@pytest.mark.parametrize(
    ("pruner", "ensemble", "seconds"),
    [
        # Eight trials one after another and two confirmations; four trials fill the rungs, the others take half.
        (NoPruning(), 1, 1000),
        (Quantile(rungs=(0.25, 0.5), quantile=0.5, startup=4), 1, 400 + 4 * 50 + 200),
        (Quantile(rungs=(0.25, 0.5), quantile=0.5, startup=9), 1, 1000),
        # Two stacks of four: at least one of the second one's goes on past the rungs with chances 15/16 and 175/256.
        (Quantile(rungs=(0.25, 0.5), startup=4), 4, 100 + 25 + 25 * 15 / 16 + 50 * 175 / 256 + 100),
    ],
)
def test_search_trials_are_expected_to_be_pruned_once_the_rungs_are_filled(
    pruner: Pruner, ensemble: int, seconds: float, tmp_path: Path
) -> None:
    loss = Loss("smooth_topk_svm", {"tau": Float(0.1, 10.0)}, {"tau": 1.0})
    protocol = Protocol(pruner=pruner, ensemble=ensemble)
    arm = Arm(Regime("all", "digits"), Model("linear"), loss, 3, Recipe(4), protocol=protocol)
    study = Study("s", [arm], topk=(1, 3), trials=8, seeds=2)
    found = plan(study, store=tmp_path, workers=1)
    assert found.forecast.seconds == pytest.approx(seconds)
    assert found.seconds == pytest.approx(100 * (10 if ensemble == 1 else 3))  # at most: nothing pruned
