"""``topk status`` and its like on sound and damaged stores: whatever is damaged in one study, the others are shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from in_process import topk
from made_records import filled, make_record, make_study


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two studies of a trial each."""
    for name in ("a", "s"):
        filled(tmp_path, replace(make_study(), name=name), make_record(make_study(), 0))
    return tmp_path


@pytest.mark.parametrize(
    "name", ["ledger.json", "identities.json", "undone.json", "ledger/_delta_log/00000000000000000000.json"]
)
def test_one_damaged_study_hides_no_other(name: str, store: Path) -> None:
    (store / "a" / name).write_bytes(b"[")
    status, data = topk("status", "--store", str(store)), topk("status", "--json", "--store", str(store))
    assert "s: 1 trial ended" in status.out
    assert [study["study"] for study in json.loads(data.out)] == ["s"]
    for said in (status, data):
        (line,) = said.err.splitlines()
        assert f"/a': {name} is damaged; `topk repair a --store {store}` " in line
        assert said.code == 2


def test_a_study_without_its_mark_is_no_folder_of_something_else(store: Path) -> None:
    (store / "a" / "ledger.json").unlink()
    (store / "mlflow-artifacts").mkdir()
    (store / "mlflow-artifacts" / "file").touch()
    (line,) = topk("status", "--store", str(store)).err.splitlines()
    assert f"/a': ledger.json is missing; `topk repair a --store {store}` keeps what is sound" in line


def test_a_trial_is_found_beside_a_damaged_study(store: Path) -> None:
    key = make_record(make_study(), 0).trial.key
    damaged = store / "a" / "ledger.json"
    damaged.write_bytes(b"")
    assert key in topk("replay", key[:8], "--no-train", "--store", str(store)).out
    assert "ledger.json is damaged" in topk("replay", "ffffffff", "--store", str(store)).err


def test_repair_says_what_it_did(store: Path) -> None:
    for name in ("ledger.json", "ledger/_delta_log/00000000000000000000.json"):
        (store / "s" / name).write_bytes(b"")
    said = topk("repair", "s", "--store", str(store))
    assert said.code == 0
    assert said.out.splitlines() == [
        "set aside: ledger.json is now in the folder damaged",
        "set aside: ledger/_delta_log/00000000000000000000.json is now in the folder damaged",
        "made again: ledger.json",
        "a new table has the 1 trial that could be read; all others run again; the old table is damaged/ledger",
    ]
    assert topk("repair", "s", "--store", str(store)).out == "nothing is damaged\n"
