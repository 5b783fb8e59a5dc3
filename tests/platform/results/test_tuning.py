"""Tuning curves, how many trials are enough, and which parameters matter."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from topk_platform import (
    TPE,
    Arm,
    Choice,
    Float,
    Loss,
    Model,
    Protocol,
    Recipe,
    Regime,
    Study,
    UserError,
    grid,
)
from topk_platform.protocol.ended import Ended
from topk_platform.records import ArmHistory, Ledger, Store, results_of
from topk_platform.reports.tuning_text import tuning_to_csv, tuning_to_markdown
from topk_platform.results import tuning as module
from topk_platform.results.from_store import Held
from topk_platform.results.tuning import ArmTuning, Tuning

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
        drawn = {
            "tau": 10 ** rng.uniform(-2, 1),
            "unused": rng.random(),
            "batch_size": int(rng.choice([16, 32])),
        }
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


def test_the_curve_is_the_mean_best_of_all_samples() -> None:
    """Drawn with replacement from five results: for two and three of them, all 25 and 125 samples by hand."""
    results = [0.5, 0.7, 0.6, 0.9, 0.65]
    result = module._curve(results)
    for n in (1, 2, 3):
        best = [max(sample) for sample in itertools.product(results, repeat=n)]
        assert result.expected[n - 1] == pytest.approx(np.mean(best))
    assert all(
        low <= mean <= high for low, mean, high in zip(result.low, result.expected, result.high, strict=True)
    )


@pytest.mark.slow
def test_the_band_holds_the_true_curve_as_often_as_said() -> None:
    """200 searches of 20 uniform results, whose true curve is n / (n + 1): 95 %, give or take four standard errors."""
    rng, held = np.random.default_rng(2), 0
    truth = np.arange(1, 21) / np.arange(2, 22)
    for _ in range(200):
        result = module._curve(rng.random(20).tolist())
        held += bool(np.all((np.array(result.low) <= truth) & (truth <= np.array(result.high))))
    assert held / 200 > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 200)


def tuned(history: ArmHistory, trials: int) -> ArmTuning:
    study = Study("s", [history.arm], topk=(1, 3), trials=trials)
    (results,) = results_of(study, {study.arm_id(history.arm): history}).values()
    return module._tuned(results)


def test_only_random_draws_make_a_curve_and_lost_trials_count_as_nothing() -> None:
    """Forty after the first were drawn at random; what diverged is 0, what was stopped its last validation."""
    results = [0.5, *([0.6] * 50)]
    statuses = ["completed", "diverged", "pruned"]
    result = tuned(history_of(an_arm(), results, statuses), 51)
    assert (result.drawn, len(result.trace), result.curve is not None) == (40, 51, True)
    assert result.trace[:3] == (0.5, 0.5, 0.6)
    assert result.enough(0.001) == 3
    assert tuned(history_of(an_arm(3), results), 51).curve is None
    assert module._result(Ended(0, {}, "diverged", {1: 0.9})) == 0


def test_first_values_are_no_draw_and_draws_that_equal_them_are() -> None:
    """Another arm may have given a first trial its values; with few options, draws often equal the first values."""
    arm = an_arm(random=6)
    for number, values in ((0, {**FIRST, "tau": 2.0}), (3, FIRST)):
        history = history_of(arm, [0.5, *([0.6] * 6)])
        history.search[number] = {**history.search[number], "values": json.dumps(values)}
        assert tuned(history, 7).drawn == 6


def test_arms_are_compared_by_name_so_that_thousands_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = [Loss("smooth_topk_svm", SPACE, FIRST, label=f"l{number}") for number in range(3)]
    study = Study(
        "s", grid([Regime("r", "digits")], [Model("mlp")], losses, k=3, recipe=Recipe(1)), topk=(1, 3)
    )
    histories = {study.arm_id(arm): history_of(arm, [0.5]) for arm in study.arms}
    held = Held(study, Ledger(Store.open("unused"), "s"), histories)
    shown = study.only("*/l1").arms
    monkeypatch.setattr(Arm, "__eq__", lambda *_: pytest.fail("arms were compared field by field"))
    assert [arm.arm for arm in module.tuning_of(held, shown).arms] == ["r/mlp/l1"]


def test_what_matters_is_distinguished_from_what_does_not() -> None:
    """Where τ alone decides, it has nearly all importance, its correlation is 1, its best third the last."""
    arm = an_arm(60)
    history = history_of(arm, [0.0] * 61)
    for row in history.search.values():
        tau = json.loads(row["values"])["tau"]
        row[f"validation.{arm.metric}"] = 0.5 + 0.1 * math.log10(tau)
    result = {s.name: s for s in tuned(history, 61).sensitivities}
    importances = {name: s.importance for name, s in result.items()}
    assert importances["tau"] is not None and importances["tau"] > 0.8
    assert sum(value or 0 for value in importances.values()) == pytest.approx(1)
    assert result["tau"].correlation == pytest.approx(1)
    low, middle, high = result["tau"].best.values()
    assert low is not None and middle is not None and high is not None and low < middle < high <= 0.6
    assert result["batch_size"].correlation is None and set(result["batch_size"].best) == {"16", "32"}
    few = tuned(history, 6).sensitivities
    assert [s.importance for s in few] == [None] * 3


def test_parameters_that_arms_have_otherwise_stand_side_by_side() -> None:
    arms = [
        Arm(
            Regime("r", "digits"),
            Model("mlp"),
            Loss("smooth_topk_svm", fixed={"tau": tau, "k": 5}, label=f"tau-{tau}"),
            3,
            Recipe(1),
        )
        for tau in (0.1, 1.0)
    ]
    study = Study("s", arms, topk=(1, 3), seeds=2)
    confirm = {(0, s): {"status": "completed", "validation.top3": 0.5 + s / 10} for s in (1, 2)}
    histories = {study.arm_id(arm): ArmHistory(arm, {}, confirm) for arm in arms}  # type: ignore[arg-type]
    result = module._fixed(list(results_of(study, histories).values()))
    assert [(f.parameter, f.value, f.n) for f in result] == [("tau", 0.1, 2), ("tau", 1.0, 2)]
    assert result[0].mean == pytest.approx(0.65)
    text = tuning_to_markdown(Tuning("s", (), tuple(result)))
    assert "| r/mlp | smooth_topk_svm | tau | 0.1 | top3 | 65.0 ± 7.1 | 2 |" in text


def test_tuning_as_text() -> None:
    result = Tuning("s", (tuned(history_of(an_arm(), [0.5, *([0.6] * 20)]), 21),), ())
    text = tuning_to_markdown(result, 0.005)
    assert "| r/mlp/smooth_topk_svm | top3 | 60.0 | 2 of 21 | 1 of 20 |" in text
    assert "within 0.5 points" in text and "independent draws" in text
    rows = list(csv.DictReader(io.StringIO(tuning_to_csv(result))))
    assert len(rows) == 21 and rows[-1]["expected_of_random"] == "" and float(rows[0]["low"]) < 0.6


@pytest.mark.parametrize("within", [0, -1, 100, math.nan])
def test_a_tolerance_has_a_range(within: float) -> None:
    with pytest.raises(UserError, match="--within must be points"):
        module.check_within(within)
