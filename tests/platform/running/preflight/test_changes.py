"""What a plan says of trials that are trained again: which of code, data, versions or study has changed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.code_version import code_definitions, code_version, code_versions
from topk_platform.identity import Identity
from topk_platform.records import Ledger, Store
from topk_platform.running.preflight.changes import avoidable, note_code, outdated
from topk_platform.specs import Trial, TrialRecord


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
        (Identity("c", "g"), "the data have changed"),
        (
            Identity("c", "f", {"torch": "2.1"}),
            "the machine or its packages have changed: torch 2.0 in place of 2.1",
        ),
        (Identity("d", "f"), "the code has changed since version c, whose definitions were not recorded"),
    ],
)
def test_data_versions_and_code_of_which_nothing_is_noted(
    tmp_path: Path, counted: Identity, why: str
) -> None:
    study = a_study()
    ledger = recorded(tmp_path, study, "c")
    result = changes(study, ledger, {study.arm_id(arm): counted for arm in study.arms})
    assert result == [f"4 recorded trials of 2 arms, 4 s of training: {why}"]


def test_the_definitions_that_changed_are_named(tmp_path: Path) -> None:
    """By what was noted when the trials ran: as if one had been other then, one gone since, and one new."""
    study = a_study()
    codes = code_versions(study)
    ledger = recorded(tmp_path, study, "older")
    note_code(ledger.store, study)
    noted = json.loads(ledger.store.read("code.json"))
    assert set(noted["versions"]) == set(codes.values())
    arm = study.arms[0]
    listed = {n: d for part in noted["versions"][code_version(arm)] for n, d in noted["parts"][part].items()}
    assert listed == code_definitions(arm)
    older = {**listed, "topk_losses.functional.entropy.cross_entropy": "other", "topk_losses.gone": "x"}
    del older["topk_platform.metrics.target_rank"]
    noted["parts"]["p"], noted["versions"]["older"] = older, ["p"]
    ledger.store.write("code.json", json.dumps(noted).encode())
    one = dataclasses.replace(study, arms=study.arms[:1])
    assert changes(
        one, ledger, {study.arm_id(arm): Identity(codes[study.arm_id(arm)], "f", {"torch": "2.0"})}
    ) == [
        "2 recorded trials of r/linear/cross_entropy, 2 s of training: the code has changed: "
        "topk_losses.functional.entropy.cross_entropy, topk_losses.gone (gone), topk_platform.metrics.target_rank (new)"
    ]


def test_what_was_noted_stays_and_damage_is_as_good_as_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.write("code.json", b"junk")
    note_code(store, a_study())
    noted = json.loads(store.read("code.json"))
    parts = {"p": {"a": "b"}, **noted["parts"]}
    store.write(
        "code.json", json.dumps({"parts": parts, "versions": {"older": ["p"], **noted["versions"]}}).encode()
    )
    before = store.read("code.json")
    note_code(store, a_study(epochs=2))  # of the same code
    assert store.read("code.json") == before
    assert list(json.loads(before)["versions"]) == ["older", *code_versions(a_study()).values()]


def test_a_study_that_changed_names_its_differences(tmp_path: Path) -> None:
    ledger = recorded(tmp_path, a_study(), "c")
    new = a_study(epochs=5, topk=(1, 2, 3))
    (result,) = changes(new, ledger, identities(new, "c"))
    assert result.startswith(
        "4 recorded trials of 2 arms, 4 s of training: the study has changed: recipe.epochs was 1, is 5; topk was "
    )
    one = dataclasses.replace(new, arms=new.arms[:1])
    (result,) = changes(one, ledger, identities(one, "c"))
    assert result.startswith("2 recorded trials of r/linear/cross_entropy, ")


def test_what_training_again_would_cost_and_the_command_that_avoids_it(tmp_path: Path) -> None:
    study = a_study()
    ledger = recorded(tmp_path, study, "c")
    result = outdated(study, ledger, identities(study, "d"), identities(study, "d"))
    assert [(one.trials, one.seconds, one.adoptable) for one in result] == [(4, 4.0, True)]
    assert avoidable(result, "topk adopt s") == (
        "4 of them need not be trained: `topk adopt s --replay 2` trains 2 again, about 2 s, and counts all 4 if "
        "these come out the same"
    )
    for other in (identities(study, "d", "g"), identities(a_study(epochs=5), "c")):
        longer = study if "g" in {one.dataset_fingerprint for one in other.values()} else a_study(epochs=5)
        result = outdated(longer, ledger, other, other)
        assert [one.trials for one in result] == [4]
        assert avoidable(result, "topk adopt s") == ""
