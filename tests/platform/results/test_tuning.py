"""How many trials were enough, and which parameters matter."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from topk_platform import TPE, Arm, Choice, Float, Loss, Model, Protocol, Recipe, Regime, Study
from topk_platform.records import ArmHistory, results_of
from topk_platform.results import tuning as module
from topk_platform.results.tuning import ArmTuning

SPACE = {"tau": Float(0.01, 10, log=True), "unused": Float(0, 1), "batch_size": Choice((16, 32))}
FIRST = {"tau": 1.0, "unused": 0.5, "batch_size": 16}


def an_arm(random: int = 40) -> Arm:
    loss = Loss("smooth_topk_svm", SPACE, FIRST)
    protocol = Protocol(TPE(random=random))
    return Arm(Regime("r", "digits"), Model("mlp"), loss, 3, Recipe(1), protocol=protocol)


def history_of(arm: Arm, results: Sequence[float], statuses: Sequence[str] = ()) -> ArmHistory:
    """Trials of random values whose result is as given; the first has the study's own."""
    rng = np.random.default_rng(0)
    rows, curves = {}, {}
    for number, result in enumerate(results):
        tau, unused, batch = 10 ** rng.uniform(-2, 1), rng.random(), int(rng.choice([16, 32]))
        drawn = {"tau": tau, "unused": unused, "batch_size": batch}
        status = statuses[number] if number < len(statuses) else "completed"
        rows[number] = {
            "key": f"k{number}",
            "number": number,
            "status": status,
            "values": json.dumps(drawn if number else FIRST),
            f"validation.{arm.metric}": result if status == "completed" else None,
        }
        curves[f"k{number}"] = {1: result} if status == "pruned" else {}
    return ArmHistory(arm, rows, curves=curves)  # type: ignore[arg-type]


def tuned(history: ArmHistory, trials: int) -> ArmTuning:
    study = Study("s", [history.arm], topk=(1, 3), trials=trials)
    (results,) = results_of(study, {study.arm_id(history.arm): history}).values()
    return module._tuned(results)


def test_lost_trials_count_as_nothing_and_stopped_ones_with_their_last_validation() -> None:
    results = [0.5, 0.9, *([0.6] * 4)]
    result = tuned(history_of(an_arm(), results, ["completed", "diverged", "pruned"]), 6)
    assert result.trace == (0.5, 0.5, 0.6, 0.6, 0.6, 0.6)
    assert result.enough(0.001) == 3 and result.enough(0.1) == 1
    lost = tuned(history_of(an_arm(), [0.9], ["diverged"]), 1)
    assert lost.trace == (0.0,) and lost.enough(0.1) is None


def test_what_matters_is_distinguished_from_what_does_not() -> None:
    """Where τ alone decides, it has nearly all importance."""
    arm = an_arm(60)
    history = history_of(arm, [0.0] * 61)
    for row in history.search.values():
        tau = json.loads(row["values"])["tau"]
        row[f"validation.{arm.metric}"] = 0.5 + 0.1 * math.log10(tau)
    shares = tuned(history, 61).importances
    assert set(shares) == set(SPACE) and shares["tau"] > 0.8
    assert sum(shares.values()) == pytest.approx(1)
    assert tuned(history, 9).importances == {} == tuned(history_of(arm, [0.5] * 20), 20).importances
