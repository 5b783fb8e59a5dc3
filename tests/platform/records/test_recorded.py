"""What a store knows of a study without its definition: the same counts as the study's own state."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_records import filled
from made_records import make_record as record
from made_studies import searched, small_study

from topk_platform import Protocol, Recipe, Study
from topk_platform.errors import StoreError, UserError
from topk_platform.identity import Identity
from topk_platform.protocol import StudyProgress
from topk_platform.records.history import last_counted, progress_of, read_history
from topk_platform.records.ledger import Ledger
from topk_platform.records.recorded import Recorded, find
from topk_platform.records.states import read_state
from topk_platform.records.storage.checked_json import with_checksum
from topk_platform.records.storage.store import Store
from topk_platform.specs import Trial
from topk_platform.testing import fake_run


def a_study() -> Study:
    losses, protocol = (searched(), searched("focal"), "ldam"), Protocol(searches=2, ensemble=2)
    return small_study(*losses, k=1, recipe=Recipe(2), protocol=protocol, trials=8, seeds=12)


def score(trial: Trial) -> float:
    return 0.9 - 0.1 * (trial.arm.loss.label == "focal") - 0.2 * trial.values.get("learning_rate", 0.1) ** 2  # type: ignore[operator]


def progress_at(study: Study, ledger: Ledger) -> StudyProgress:
    """Return the state that a run of the study begins with."""
    counted = last_counted(ledger, study)
    return progress_of(study, counted, read_history(ledger, study, counted))


@pytest.mark.parametrize("ended", [1, 9, 30, None])
def test_status_has_the_counts_of_a_run(tmp_path: Path, ended: int | None) -> None:
    """With several searches, and ensembles trained whole."""
    study = a_study()
    ledger = fake_run(study, tmp_path, score, stop_after=ended)
    progress, state = progress_at(study, ledger), read_state(Recorded.read(ledger))
    assert [arm.left for arm in state.arms] == [arm.left + arm.along for arm in progress.arms.values()]
    assert state.whole.done == sum(len(arm.searched) + len(arm.confirmed) for arm in progress.arms.values())
    assert ended is not None or state.whole.left == 0


def test_arms_that_the_last_run_was_not_asked_for_have_no_plan(tmp_path: Path) -> None:
    whole, part = a_study(), a_study().only("*/focal")
    fake_run(whole, tmp_path, score)
    codes = last_counted(Ledger.open(Store.open(tmp_path), "s"), whole)
    identities = {arm_id: Identity(one.code_version, "fake") for arm_id, one in codes.items()}
    ledger = fake_run(part, tmp_path, score, identities=identities)
    arms = {arm.arm: arm.left for arm in read_state(Recorded.read(ledger)).arms}
    assert arms == {"r/mlp/focal": 0, "r/mlp/cross_entropy": None, "r/mlp/ldam": None}


def test_rows_of_other_code_and_of_arms_that_are_gone_are_counted_by_reason(tmp_path: Path) -> None:
    study = a_study()
    ledger = fake_run(study, tmp_path, score)
    first, *others = last_counted(ledger, study)
    with ledger.writing(study):
        ledger.identify({first: Identity("older", "fake"), **{i: Identity("", "fake") for i in others[:1]}})
    recorded = Recorded.read(ledger)
    gone = sum(row["arm_id"] == others[1] for row in ledger.rows())
    old = sum(row["arm_id"] == first for row in ledger.rows())
    assert recorded.outdated == {"other code": old, "arms that the study no longer has": gone}
    assert recorded.trials == len(ledger.rows()) == len(recorded.keys)


@pytest.fixture
def key(tmp_path: Path, study: Study) -> str:
    """The key of a trial in the study ``s``, in a store with a folder of something else."""
    ended = record(study)
    filled(tmp_path, study, ended)
    (tmp_path / "mlflow-artifacts").mkdir()
    (tmp_path / "mlflow-artifacts" / "file").touch()
    return ended.trial.key


@pytest.mark.parametrize("typed", ["0", "ffffffff"])
def test_a_key_of_no_trial_is_refused(typed: str, tmp_path: Path, key: str) -> None:
    assert not key.startswith(typed)
    with pytest.raises(UserError, match=f"key '{typed}'"):
        find(typed, tmp_path)


def test_a_study_of_another_schema_may_hold_the_trial(tmp_path: Path, key: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ledger.json").write_bytes(with_checksum({"study": "a", "schema_version": 99}))
    result = find(key[:8], tmp_path)
    assert (result.row["key"], len(result.epochs)) == (key, 2)
    with pytest.raises(StoreError, match="schema version 99"):
        find("ffffffff", tmp_path)
