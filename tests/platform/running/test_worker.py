"""What a process of Tune's reports of a trial, and what it refuses to train."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from made_studies import small_study

from topk_platform import Recipe
from topk_platform.data import load
from topk_platform.errors import FAULTS, TimeLimitError, UnreachableStoreError
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress
from topk_platform.records.files import damaged_artifacts, missing_artifacts
from topk_platform.records.storage.store import MARK, Store
from topk_platform.records.writer import trial_row
from topk_platform.running import worker
from topk_platform.running.trainable import TrialTrainable
from topk_platform.specs import Trial, TrialRecord
from topk_platform.training import Heartbeat, environment
from topk_platform.versions import version_of

STUDY = small_study(models=["linear"])
ORDER = {
    "recorded": [],
    "data": "data",
    "checkpoint_seconds": 60.0,
    "time_limit": math.inf,
    "start_limit": 600.0,
    "report_seconds": 0.0,
    "share": 1.0,
    "measures": {},
    "pause": 0.0,
}


def trainable(trials: list[Trial], **order: Any) -> TrialTrainable:
    """A trainable of Tune's with these trials, in this process."""
    made = object.__new__(TrialTrainable)
    made.setup({"order": {**ORDER, "trials": [trial.to_json() for trial in trials], **order}})
    return made


def messages(made: TrialTrainable) -> list[dict[str, Any]]:
    """All that it reports, to its end."""
    reported = [made.step()]
    while not reported[-1]["done"]:
        reported.append(made.step())
    return reported


def result(tmp_path: Path, store: str = "", limit: float = math.inf, **planned: Any) -> dict[str, Any]:
    """What the worker brings of a trial that was planned so, its messages together."""
    (arm,) = STUDY.arms
    known = {"dataset_fingerprint": load(arm.regime).fingerprint, "code_version": version_of(arm)}
    (tmp_path / MARK).touch()
    progress = ArmProgress(STUDY, arm, Identity(**{**known, **planned}))
    trial = progress.trial(progress.next_slot())
    return messages(trainable([trial], folder=str(store or tmp_path), time_limit=limit))[-1]


def short_loop(records: list[TrialRecord]) -> Any:
    """Stands for the training loop: one sign of life before any epoch has ended."""
    yield Heartbeat()
    return records


def test_messages_of_a_running_trial_hold_its_epochs_metrics(tmp_path: Path) -> None:
    """As they are in the record that comes at the end."""
    study = small_study(models=["linear"], recipe=Recipe(3))
    identity = Identity(version_of(study.arms[0]), load(study.arms[0].regime).fingerprint)
    progress = ArmProgress(study, study.arms[0], identity)
    (tmp_path / MARK).touch()
    reported = messages(trainable([progress.trial(progress.next_slot())], folder=str(tmp_path)))
    (text,) = reported.pop()["records"]
    epochs = TrialRecord.from_json(text).epochs
    curve = [epoch.validation["top3"] for epoch in epochs]
    assert max(message["epoch"] for message in reported) == len(curve) == 3
    for message in reported:
        shown = message["epoch"]
        assert not shown or message["validation/top3"] == curve[shown - 1]
        assert not shown or message["train_loss"] == epochs[shown - 1].train_loss


def test_an_epoch_and_the_first_checkpoint_are_news(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = ArmProgress(STUDY, STUDY.arms[0], Identity("c", "f")).trial(("confirm", 0, 1))

    def training(_trials: Any, _order: Any) -> Any:
        yield from (
            Heartbeat(),
            Heartbeat(kept=10),
            Heartbeat(kept=20),
            Heartbeat(1, kept=30),
            Heartbeat(1, kept=40),
        )
        return [TrialRecord(trial, "completed")]

    monkeypatch.setattr(worker, "_checked", training)
    *reported, _ = messages(trainable([trial]))
    assert [(message["epoch"], message["kept"]) for message in reported] == [(0, 10), (1, 30)]


def test_a_process_trains_one_trial_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def training(trials: Any, _order: Any) -> Any:
        started.append(trials[0].seed)
        return (yield from short_loop([TrialRecord(trials[0], "completed")]))

    monkeypatch.setattr(worker, "_checked", training)
    progress = ArmProgress(STUDY, STUDY.arms[0], Identity("c", "f"))
    first, second = (progress.trial(("confirm", 0, seed)) for seed in (1, 2))
    made = trainable([first])
    assert len(messages(made)[-1]["records"]) == 1
    assert made.reset_config({"order": {**ORDER, "trials": [second.to_json()]}}) and started == [1]
    assert len(messages(made)[-1]["records"]) == 1 and started == [1, 2]


def test_a_further_try_waits_first(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = ArmProgress(STUDY, STUDY.arms[0], Identity("c", "f")).trial(("confirm", 0, 1))
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    assert trainable([trial], pause=3600.0).step() == {"done": False}
    assert slept == [2.0], "in parts, so that Tune can stop it meanwhile"


HANGS = """
import sys, threading
from topk_platform.running.trainable import TrialTrainable

def silent():
    threading.Event().wait()
    yield

made = object.__new__(TrialTrainable)
made.setup({"order": {"pause": 0.0, "start_limit": 0.5, "report_seconds": 1.0}})
made._work = silent()
made.step()
"""


def test_a_process_that_is_silent_for_too_long_ends_itself_and_says_where() -> None:
    command = [sys.executable, "-c", HANGS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "Timeout" in done.stderr and "in silent" in done.stderr


def test_what_was_planned_is_trained(tmp_path: Path) -> None:
    here = {**environment("cpu"), "optuna": "of the driver, which a worker need not have"}
    for actual in (result(tmp_path), result(tmp_path, environment=here)):
        (record,) = map(TrialRecord.from_json, actual["records"])
        assert record.status == "completed" and not actual.keys() & {"fault", "refused"}
        assert damaged_artifacts(Store.open(tmp_path), [trial_row(record)]) == []
        assert missing_artifacts(Store.open(tmp_path), [trial_row(record)]) == []


@pytest.mark.parametrize("folder", ["models", "ranks", "guesses"])
def test_a_file_in_the_way_of_a_folder_costs_the_network_alone_or_is_a_fault_at_once(
    folder: str, tmp_path: Path
) -> None:
    (tmp_path / folder).write_text("in the way")
    actual = result(tmp_path)
    if folder != "models":
        assert actual["fault"] == "RefusingStoreError" and "records" not in actual
        assert f"{tmp_path / folder}" in actual["why"]
        return
    (record,) = map(TrialRecord.from_json, actual["records"])
    assert record.status == "completed" and record.test
    assert record.artifacts.keys() == {"ranks", "guesses"}
    assert "cannot be written" in record.missing["network"]
    rows = [trial_row(record)]
    assert damaged_artifacts(Store.open(tmp_path), rows) == []
    assert [file.kind for file in missing_artifacts(Store.open(tmp_path), rows)] == ["network"]


@pytest.mark.parametrize("store", ["nowhere://bucket", "/nowhere/that/is/shared"])
def test_a_fault_that_may_pass_is_raised_so_that_tune_tries_again(store: str, tmp_path: Path) -> None:
    with pytest.raises(UnreachableStoreError):
        result(tmp_path, store)


def test_a_fault_that_stays_is_reported_by_its_name_and_brings_no_record(tmp_path: Path) -> None:
    actual = result(tmp_path, limit=0.0)
    assert actual.keys() == {"done", "fault", "why"}
    assert FAULTS[actual["fault"]] is TimeLimitError and actual["why"]


@pytest.mark.parametrize(
    ("planned", "reason"),
    [
        ({"code_version": "engine another"}, "arm r/linear/cross_entropy: a worker has other code than"),
        ({"dataset_fingerprint": "another"}, "dataset digits"),
        ({"environment": {**environment("cpu"), "machine": "another"}}, "arm r/linear/cross_entropy"),
    ],
)
def test_other_code_data_or_machines_than_planned_are_refused_and_bring_no_record(
    tmp_path: Path, planned: dict[str, str], reason: str
) -> None:
    actual = result(tmp_path, **planned)
    assert actual.keys() == {"done", "refused"} and actual["done"]
    assert actual["refused"].startswith(reason) and "another" in actual["refused"]


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_trial_that_outgrows_its_share_of_a_gpu_is_left_open_and_brings_no_record(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a whole GPU it is a result."""
    study = small_study(models=["linear"], device="cuda", gpus=share)
    trial = ArmProgress(study, study.arms[0], Identity("c", "f")).trial(("confirm", 0, 1))
    record = TrialRecord(trial, "failed", "CUDA out of memory. Tried to allocate 2.00 GiB.")

    def training(_trials: Any, _config: Any) -> Any:
        return (yield from short_loop([record]))

    monkeypatch.setattr(worker, "_checked", training)
    last = messages(trainable([trial], share=share))[-1]
    assert ("records" in last) == (share == 1)
    if share < 1:
        assert last.keys() == {"done", "fault", "why"} and last["fault"] == "SmallShareError"
        assert last["why"].startswith("it takes more memory than 0.5 of a GPU: CUDA out of memory.")
