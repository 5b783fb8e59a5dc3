"""``topk replay`` of a trial whose loss is a user's own, in the folder it runs in; ``topk ui`` over IPv6."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from in_process import topk
from made_studies import small_study
from trained_studies import train_study

from topk_platform import versions
from topk_platform.cli import inspecting
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.specs import TrialRecord

STUDY = small_study("loss_of_ones_own:loss", name="own", models=["linear"], seeds=1)
(ARM,) = STUDY.arms
Replay = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "loss_of_ones_own.py").write_text("from helper_of_ones_own import loss\n")
    (tmp_path / "helper_of_ones_own.py").write_text("from torch.nn import CrossEntropyLoss as loss\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOPK_DATA", raising=False)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    forget(monkeypatch)
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next command import the modules anew, as another process does."""
    versions._loaded.cache_clear()
    for name in ("loss_of_ones_own", "helper_of_ones_own"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def recorded(fingerprint: str = "", **versions_then: str) -> str:
    """Train a trial, write it down as trained on these data with these versions, and return its key."""

    def changed(record: TrialRecord) -> TrialRecord:
        data = fingerprint or record.trial.dataset_fingerprint
        trial = dataclasses.replace(record.trial, dataset_fingerprint=data)
        return dataclasses.replace(record, trial=trial).replace_versions(**versions_then)

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path.cwd()))
        train_study(STUDY, Path("runs"), changed)
    (row,) = Ledger.open(Store.open("runs"), "own").rows()
    return str(row["key"])


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Replay:
    def call(*arguments: str) -> tuple[int, str, str]:
        forget(monkeypatch)
        return topk("replay", *arguments)

    return call


@pytest.mark.parametrize("machine", ["", "another"])
def test_modules_of_the_folder_are_seen_and_another_machine_is_named(
    folder: Path, replay: Replay, machine: str
) -> None:
    code, out, err = replay(recorded(**({"machine": machine} if machine else {})))
    assert (code, err) == (0, "")
    assert "bit for bit" in out and "the code has changed" not in out
    assert ("machine another" in out) == bool(machine)


def test_the_record_is_shown_without_training(
    folder: Path, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = recorded()
    monkeypatch.setattr(inspecting, "replay_trial", None)
    (row,) = Ledger.open(Store.open("runs"), "own").rows()
    code, out, err = replay(key[:8], "--no-train")
    assert (code, err) == (0, "") and "trained again" not in out
    for shown in (key, row["arm"], "completed", f"{row['validation.top3']:.6g}", f'"{row["code_version"]}"'):
        assert shown in out
    whole = json.loads(replay(key, "--no-train", "--json")[1])
    assert whole["validation.top3"] == row["validation.top3"] and len(whole["epochs"]) == 1
    assert whole["config"] == json.loads(row["config"]) and "replay" not in whole


def test_what_differs_is_named_and_ends_with_code_1(folder: Path, replay: Replay) -> None:
    key = recorded()
    with (folder / "helper_of_ones_own.py").open("a") as file:
        file.write("from functools import partial\nloss = partial(loss, label_smoothing=0.5)\n")
    code, out, err = replay(key, "--json")
    whole = json.loads(out)
    assert (code, err, whole["key"], whole["status"]) == (1, "", key, "completed")
    assert "epoch 1: train.loss" in whole["replay"]["differing"]
    assert whole["replay"]["validation"].keys() >= {"top1", "top3"}
    before = whole["epochs"][0]["train.loss"]
    assert abs(whole["replay"]["largest"]["train.loss"]) > 0 and before
    assert len(whole["replay"]["changed"]) == 1 and whole["replay"]["environment"] == ""
    assert "train.loss" in replay(key)[1].partition("differs by at most")[0]


def test_changed_code_is_reported(folder: Path, replay: Replay) -> None:
    key, before = recorded(), versions.components_of(ARM)
    with (folder / "helper_of_ones_own.py").open("a") as file:
        file.write("loss = [loss][0]\n")
    code, out, _ = replay(key)
    assert code == 0 and "bit for bit" in out
    name, now = "loss_of_ones_own:loss", versions.components_of(ARM)
    assert before[name] != now[name]
    assert f"{name}: version {before[name]}, now {now[name]}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        ("loss_of_ones_own", "'loss_of_ones_own'"),
        ("helper_of_ones_own", "'helper_of_ones_own'"),
        ("", "dataset digits has fingerprint"),
    ],
)
def test_missing_modules_and_other_data_are_no_difference(
    folder: Path, replay: Replay, lacking: str, why: str
) -> None:
    key = recorded("" if lacking else "another")
    if lacking:
        (folder / f"{lacking}.py").unlink()
    code, out, err = replay(key)
    assert (code, "trained again" in out, len(err.splitlines())) == (2, False, 1)
    assert why in err


@pytest.mark.parametrize(
    ("host", "address", "warned"),
    [("::1", "[::1]", False), ("127.0.0.1", "127.0.0.1", False), ("10.0.0.1", "10.0.0.1", True)],
)
def test_the_ui_listens_where_it_should_and_warns_where_others_reach_it(
    host: str, address: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow asks for no password; its version of IPv6 needs a socket of another family."""
    (tmp_path / "mlflow.db").touch()
    asked = list[tuple[Any, ...]]()
    monkeypatch.setattr(inspecting, "run_pages", lambda _uri: {"s": "/#/experiments/1/runs"})
    monkeypatch.setattr(inspecting, "_served", lambda command, _environment: asked.append(command) or 0)
    server = MagicMock()
    monkeypatch.setattr(socket, "create_server", server)
    code, out, err = topk("ui", "--store", str(tmp_path), "--host", host, "--port", "5001")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server.assert_called_once_with((host, 5001), family=family)
    assert code == 0 and asked[0][-6:-2] == ["--host", host, "--port", "5001"]
    assert f"  s: http://{address}:5001/#/experiments/1/runs" in out
    assert err.startswith("warning: MLflow asks for no password") == warned
