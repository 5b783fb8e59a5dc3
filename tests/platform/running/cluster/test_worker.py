"""What a worker refuses to train."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.data import load
from topk_platform.errors import FAULTS, FaultError, TimeLimitError, UnreachableStoreError
from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard
from topk_platform.records import Store, damaged_artifacts, missing_artifacts
from topk_platform.records.storage.store import MARK
from topk_platform.records.table.schema import trial_row
from topk_platform.running.cluster import worker
from topk_platform.running.cluster.worker import TrialActor
from topk_platform.specs import TrialRecord
from topk_platform.training import Heartbeat, environment
from topk_platform.versions import version_of


class Desk:
    """A desk on which the next trials lie."""

    def __init__(self, *waiting: dict[str, Any]) -> None:
        self.waiting = list(waiting)

    def __call__(self, name: str, worker: str) -> Desk:
        assert (name, worker) == ("desk", "worker")
        return self

    def take(self) -> dict[str, Any] | None:
        return self.waiting.pop(0) if self.waiting else None


@pytest.fixture(autouse=True)
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk()
    monkeypatch.setattr(worker, "WorkersDesk", desk)
    return desk


AT = {"desk": "desk", "worker": "worker"}


def result(tmp_path: Path, store: str = "", limit: float = math.inf, **planned: Any) -> dict[str, Any]:
    """What the worker brings of a trial that was planned so, its messages together."""
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 3, Recipe(1))
    known = {"dataset_fingerprint": load(arm.regime).fingerprint, "code_version": version_of(arm)}
    (tmp_path / MARK).touch()
    board = ArmBoard(Study("s", [arm], topk=(1, 3)), arm, Identity(**{**known, **planned}))
    trial = board.trial(board.next_slot())
    actor = object.__new__(TrialActor)
    config = {"trials": [trial.to_json()], "recorded": [], "data": "data", "store": str(store or tmp_path)}
    actor.setup(
        {**config, **AT, "checkpoint_seconds": 60.0, "time_limit": limit, "report_seconds": 2.0, "share": 1.0}
    )
    brought: dict[str, Any] = {"ended": False}
    while not brought["ended"]:
        brought |= actor.step()
    assert actor.step() == {"done": True}
    return brought


def short_loop(records: list[TrialRecord]) -> Any:
    """Stands for the training loop: one sign of life before any epoch has ended."""
    yield Heartbeat()
    return records


def test_messages_of_a_running_trial_hold_its_epoch_and_its_curve(tmp_path: Path) -> None:
    """As they are in the record that comes at the end."""
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 3, Recipe(3))
    identity = Identity(version_of(arm), load(arm.regime).fingerprint)
    board = ArmBoard(Study("s", [arm], topk=(1, 3)), arm, identity)
    (tmp_path / MARK).touch()
    actor = object.__new__(TrialActor)
    trial = board.trial(board.next_slot())
    config = {"trials": [trial.to_json()], "recorded": [], "data": "data", "store": str(tmp_path), **AT}
    limits = {"checkpoint_seconds": 60.0, "time_limit": math.inf, "report_seconds": 0.0, "share": 1.0}
    actor.setup(config | limits)
    messages = [actor.step()]
    while not messages[-1]["ended"]:
        messages.append(actor.step())
    (text,) = messages.pop()["records"]
    curve = [epoch.validation["top3"] for epoch in TrialRecord.from_json(text).epochs]
    assert max(message["epoch"] for message in messages) == len(curve) == 3
    assert all(message["curve"] == curve[: message["epoch"]] for message in messages)


def test_a_process_trains_one_trial_after_another(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    started: list[int] = []

    def training(trials: Any, _config: Any) -> Any:
        started.append(trials[0].seed)
        return (yield from short_loop([]))

    monkeypatch.setattr(worker, "_checked", training)
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 3, Recipe(1))
    board = ArmBoard(Study("s", [arm], topk=(1, 3)), arm, Identity("c", "f"))
    trials = [board.trial(("confirm", 0, seed)).to_json() for seed in (1, 2, 3)]
    configs = [
        {**AT, "trials": [trial], "data": "data", "report_seconds": 0.0, "share": 1.0} for trial in trials
    ]
    actor = object.__new__(TrialActor)
    actor.setup(configs[0])
    assert [actor.step()["ended"] for _ in range(2)] == [False, True]
    desk.waiting.append(configs[1])
    assert [actor.step()["ended"] for _ in range(2)] == [False, True]
    assert actor.step() == actor.step() == {"done": True}
    assert actor.reset_config(configs[2]) and started == [1, 2]
    assert not actor.step()["ended"] and started == [1, 2, 3]


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


@pytest.mark.parametrize(
    ("store", "limit", "fault"),
    [
        ("nowhere://bucket", math.inf, UnreachableStoreError),
        ("/nowhere/that/is/shared", math.inf, UnreachableStoreError),
        ("", 0.0, TimeLimitError),
    ],
)
def test_a_fault_is_reported_by_its_name_and_brings_no_record(
    store: str, limit: float, fault: type[FaultError], tmp_path: Path
) -> None:
    actual = result(tmp_path, store, limit)
    assert actual.keys() == {"arm", "key", "ended", "fault", "why"}
    assert FAULTS[actual["fault"]] is fault and actual["why"]


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
    assert actual.keys() == {"arm", "key", "ended", "refused"} and actual["ended"]
    assert actual["refused"].startswith(reason) and "another" in actual["refused"]


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_trial_that_outgrows_its_share_of_a_gpu_is_left_open_and_brings_no_record(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a whole GPU it is a result."""
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 3, Recipe(1))
    study = Study("s", [arm], topk=(1, 3), device="cuda", gpus=share)
    trial = ArmBoard(study, arm, Identity("c", "f")).trial(("confirm", 0, 1))
    record = TrialRecord(trial, "failed", "CUDA out of memory. Tried to allocate 2.00 GiB.")

    def training(_trials: Any, _config: Any) -> Any:
        return (yield from short_loop([record]))

    monkeypatch.setattr(worker, "_checked", training)
    actor = object.__new__(TrialActor)
    config = {**AT, "trials": [trial.to_json()], "data": "data", "report_seconds": 0.0}
    actor.setup({**config, "share": share})
    messages = [actor.step()]
    while not messages[-1]["ended"]:
        messages.append(actor.step())
    assert any("records" in message for message in messages) == (share == 1)
    if share < 1:
        assert messages[-1].keys() == {"arm", "key", "ended", "fault", "why"}
        assert messages[-1]["fault"] == "SmallShareError"
        assert messages[-1]["why"].startswith("it takes more memory than 0.5 of a GPU: CUDA out of memory.")
    assert actor.step() == {"done": True}
