"""The checklist tells what the ledger holds, and what it cannot tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from topk_platform import Arm, Float, Loss, Model, Recipe, Regime, Study, UserError, grid
from topk_platform.records import ArmHistory, DataNote, Ledger, Samples, Store, note_data
from topk_platform.reports import checklist as module
from topk_platform.reports.checklist import Checklist, checklist, checklist_of
from topk_platform.results.from_store import Held
from topk_platform.specs import Trial
from topk_platform.testing import fake_run

RATE = {"learning_rate": Float(0.01, 1)}
LOSSES = [Loss(name, RATE, {"learning_rate": 0.1}) for name in ("cross_entropy", "smooth_topk_svm")]


def history_of(study: Study, arm: Arm) -> ArmHistory:
    """Two search trials and three confirmations of the first, all of a second each; losses differ by seed."""
    ahead = 0.0 if arm.loss.name == "cross_entropy" else 0.001

    def row(phase: str, number: int, seed: int) -> dict[str, Any]:
        metrics = {
            f"{split}.{m}": 0.5 + seed / 100 + ahead * seed**2
            for split in ("validation", "test")
            for m in study.metrics
        }
        return {
            "key": f"{arm.name}-{number}-{seed}",
            "phase": phase,
            "number": number,
            "seed": seed,
            "status": "completed",
            "reason": "",
            "values": json.dumps({"learning_rate": 0.1 + number}),
            "train_seconds": 1.0,
            "code_version": "abc",
            "dataset_fingerprint": "f00",
            "versions": '{"torch": "2.15.0", "machine": "a processor"}',
            **metrics,
        }

    search = {number: row("search", number, 0) for number in range(2)}
    return ArmHistory(arm, search, {(0, seed): row("confirm", 0, seed) for seed in (1, 2, 3)})


@pytest.fixture
def filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checklist:
    return filled(LOSSES, tmp_path, monkeypatch)


def filled(
    losses: list[Loss], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe | None = None
) -> Checklist:
    arms = grid([Regime("r", "digits")], [Model("linear")], losses, k=3, recipe=recipe or Recipe(1))
    study = Study("light", arms, topk=(1, 3), trials=2, seeds=3)
    histories = {study.arm_id(arm): history_of(study, arm) for arm in arms}
    held = Held(study, Ledger(Store.open(tmp_path).at("light"), "light"), histories)
    monkeypatch.setattr(module, "read", lambda *_, **__: held)
    return checklist(study, store=tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "- linear: linear",
        "Recipe(epochs=1, batch_size=64,",
        "| smooth_topk_svm | learning_rate | 0.01 to 1 | 0.1 |",
        "the same budget of 2 trials; each was searched once",
        "4 search trials have ended: 4 completed, 0 stopped early, 0 diverged, 0 failed",
        "By top3 on the validation split alone",
        "| cross_entropy | r | learning_rate 0.1 | 50.0 |",
        "3 fresh seeds per arm, the same in all arms; root of all random streams: 0. 6 confirmations have ended",
        "Intervals cover fresh seeds alone",
        "covers images. Not tested: differences between two losses if one of them was searched once",
        "| search | 4 | 0.00 | 1.0 |",
        "| r | digits | none | – | – | – | – | – | – | f00 |",
        "- torch: 2.15.0 (10 trials)",
        "- code version: abc",
        "No trial that counts diverged or failed.",
        "**To be answered by the authors.**",
    ],
)
def test_it_answers_what_the_ledger_knows(filled_in: Checklist, line: str) -> None:
    assert line in filled_in.to_markdown()


def test_it_says_over_how_many_tests_marks_are_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is searched, so one difference is tested."""
    text = filled([Loss(one.name) for one in LOSSES], tmp_path, monkeypatch).to_markdown()
    assert "Holm-corrected over the 1 difference in the metric of the search" in text
    assert "Not tested" not in text


def test_arms_of_other_recipes_tested_other_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last, best = Recipe(1), Recipe(1, keep=("top1",))
    for recipe, weights in ((last, "those of the last epoch."), (best, "the best validation top1.")):
        assert weights in filled(LOSSES, tmp_path, monkeypatch, recipe).to_markdown()
    arms = [
        Arm(Regime("r", "digits"), Model(m), LOSSES[0], 3, r) for m, r in (("linear", last), ("mlp", best))
    ]
    study = Study("both", arms, topk=(1, 3), trials=2, seeds=1, baseline=None)
    histories = {study.arm_id(arm): history_of(study, arm) for arm in arms}
    text = checklist_of(Held(study, Ledger(Store.open(tmp_path).at("both"), "both"), histories)).to_markdown()
    weights = "those of the epoch with the best validation top1; where a recipe keeps none of these, those of the last"
    assert weights in text and "1 fresh seed per arm" in text


def test_confirmations_of_all_points_of_a_front_are_counted(tmp_path: Path) -> None:
    """As the table of trainings counts them; the table of results has the first point of each front alone."""
    rate = {"learning_rate": Float(0.01, 1, log=True)}
    losses = [Loss("cross_entropy", rate, {"learning_rate": 0.1})]
    arms = grid(
        [Regime("r", "digits")], [Model("mlp")], losses, k=3, metrics=("top3", "top1"), recipe=Recipe(1)
    )
    study = Study("front", arms, topk=(1, 3), trials=8, seeds=2)

    def score(trial: Trial) -> dict[str, float]:
        return {
            "top1": 0.4 + 0.1 * trial.values["learning_rate"],
            "top3": 0.9 - 0.1 * trial.values["learning_rate"],
        }

    fake_run(study, tmp_path, score)
    text = checklist(study, store=tmp_path).to_markdown()
    assert "6 confirmations have ended, 6 completed" in text and "| confirm | 6 |" in text


def test_what_no_ledger_knows_is_left_to_the_authors(filled_in: Checklist) -> None:
    licences, limitations = filled_in.open
    assert "licences" in licences and "limitations" in limitations


def test_without_results_there_is_none(tmp_path: Path) -> None:
    from topk_studies import ring_modes

    with pytest.raises(UserError, match="holds nothing of study 'ring_modes'"):
        checklist(ring_modes(), store=tmp_path)
    assert not list(tmp_path.iterdir())


def test_numbers_of_samples_are_those_that_a_run_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = Samples("r", 1240, 3100, 9920, 62, 3, 6, calibration=500, groups="160 typefaces", wrong=0.3929)
    note_data(Store.open(tmp_path).at("light"), {"r": DataNote("of", samples)})
    text = filled(LOSSES, tmp_path, monkeypatch).to_markdown()
    line = "| 62 | 1,240 | 3 to 6 | 39.3% | 3,100 and 500 for calibration | 9,920 of 160 typefaces | f00 |"
    assert f"| r | digits | none {line}" in text


def test_no_number_is_printed_with_all_its_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges, first, fixed and chosen values, conditions and the recipe: to three digits each."""
    long = 0.04520469449210724
    loss = Loss("focal", {"learning_rate": Float(long, 1)}, {"learning_rate": long}, fixed={"gamma": 2 / 3})
    text = filled([loss], tmp_path, monkeypatch, Recipe(1, weight_decay=1 / 7000)).to_markdown()
    assert "| focal | learning_rate | 0.0452 to 1 | 0.0452 |" in text and "weight_decay=0.000143" in text
    assert not re.search(r"\d\.\d{7}", text)
