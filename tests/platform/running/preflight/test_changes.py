"""What a plan says of trials that are trained again: which of code, data, versions or study has changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.running.preflight.changes import outdated
from topk_platform.specs import Trial, TrialRecord

CODE = "engine 1, loss focal 1, network linear 2"


def a_study(epochs: int = 1, topk: tuple[int, ...] = (1, 3)) -> Study:
    losses = [Loss("cross_entropy"), Loss("focal")]
    arms = [Arm(Regime("r", "digits"), Model("linear"), loss, 3, Recipe(epochs)) for loss in losses]
    return Study("s", arms, topk=topk, trials=1, seeds=2)


def identities(study: Study, code: str, data: str = "f") -> dict[str, Identity]:
    return {study.arm_id(arm): Identity(code, data, {"torch": "2.0"}) for arm in study.arms}


def recorded(folder: Path, study: Study, code: str) -> Ledger:
    """A ledger with two confirmations of each arm."""
    ledger = Ledger.open(Store.open(folder), study.name)
    with ledger.writing(study) as writer:
        for arm in study.arms:
            for seed in (1, 2):
                trial = Trial(
                    "s",
                    study.arm_id(arm),
                    arm,
                    study.topk,
                    "confirm",
                    0,
                    seed,
                    0,
                    {},
                    "f",
                    code,
                    study.targets,
                )
                metrics = dict.fromkeys(study.metrics, 0.5)
                writer.put(
                    TrialRecord(trial, "completed", "", metrics, metrics, (), 1.0, 0.0, 1.0, {"torch": "2.0"})
                )
    return ledger


def changes(study: Study, ledger: Ledger, counted: Mapping[str, Identity]) -> list[str]:
    return [str(result) for result in outdated(study, ledger, counted, counted)]


def test_nothing_is_reported_what_counts_or_of_arms_that_are_done(tmp_path: Path) -> None:
    study = a_study()
    ledger = recorded(tmp_path, study, "c")
    assert changes(study, ledger, identities(study, "c")) == []
    assert outdated(study, ledger, identities(study, "other"), []) == []
    assert changes(study, Ledger.open(Store.open(tmp_path / "new"), "s"), identities(study, "c")) == []


@pytest.mark.parametrize(
    ("counted", "why"),
    [
        (Identity(CODE, "g"), "the data have changed"),
        (
            Identity(CODE, "f", {"torch": "2.1"}),
            "the machine or its packages have changed: torch 2.0 in place of 2.1",
        ),
        (
            Identity("engine 1, loss focal 3, recipe average 1", "f"),
            "the code has changed: loss focal: version 1, now 3; network linear 2: gone; recipe average 1: new",
        ),
    ],
)
def test_changes_of_data_versions_and_code(tmp_path: Path, counted: Identity, why: str) -> None:
    study = a_study()
    ledger = recorded(tmp_path, study, CODE)
    result = changes(study, ledger, {study.arm_id(arm): counted for arm in study.arms})
    assert result == [f"4 recorded trials of 2 arms, 4 s of training: {why}"]


def test_a_study_that_changed_names_its_differences(tmp_path: Path) -> None:
    ledger = recorded(tmp_path, a_study(), "c")
    new = a_study(epochs=5, topk=(1, 2, 3))
    (result,) = changes(new, ledger, identities(new, "c"))
    assert result == (
        "4 recorded trials of 2 arms, 4 s of training: the study has changed: recipe.epochs was 1, is 5"
    ), "K is no cause: ranks answer every K"
    one = dataclasses.replace(new, arms=new.arms[:1])
    (result,) = changes(one, ledger, identities(one, "c"))
    assert result.startswith("2 recorded trials of r/linear/cross_entropy, ")
