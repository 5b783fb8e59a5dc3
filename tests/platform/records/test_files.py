"""The files of confirmations: their SHA-256 stands in the record, and whatever is damaged or gone is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from damage import spoil
from made_records import a_row
from made_records import make_record as record
from made_studies import small_study
from trained_studies import train_study

from topk_platform import Study
from topk_platform.errors import StoreError
from topk_platform.records.files import (
    KINDS,
    Kind,
    Unsound,
    artifact_name,
    damaged_artifacts,
    missing_artifacts,
)
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import StoreKeeper, read_model, save_model
from topk_platform.records.per_image import read_guesses, read_ranks
from topk_platform.records.repairing import repair
from topk_platform.records.rows import Row
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import trial_row
from topk_platform.specs import Inputs

READERS = {"ranks": read_ranks, "guesses": read_guesses, "network": read_model}
SMALL = small_study(models=["linear"], seeds=3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train_study(SMALL, folder)
    return folder


@pytest.fixture
def store(trained: Path, tmp_path: Path) -> Store:
    shutil.copytree(trained / "s", tmp_path / "s")
    return Store.open(tmp_path / "s")


def rows_of(store: Store) -> list[Row]:
    return Ledger(store, "s").rows()


def path_of(store: Store, kind: Kind, key: str) -> Path:
    return Path(store.root) / artifact_name(kind, key)


@pytest.mark.parametrize("how", ["truncated", "a bit", "empty", "another's"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_and_once_set_aside_it_is_missing(how: str, kind: Kind, store: Store) -> None:
    first, *others = rows_of(store)
    path = path_of(store, kind, first["key"])
    other = next(other for other in sorted(path.parent.iterdir()) if other != path)
    if how == "another's":
        path.write_bytes(other.read_bytes())
    else:
        spoil(path, how)
    content = path.read_bytes()
    message = rf"{artifact_name(kind, first['key'])} is damaged; `topk run.*` trains that confirmation again"
    with pytest.raises(DamagedError, match=message):
        READERS[kind](store, first)
    assert all(READERS[kind](store, row) is not None for row in others)
    (result,) = damaged_artifacts(store, rows_of(store))
    assert result == Unsound(first["key"], kind)
    store.quarantine(result.name)
    assert READERS[kind](store, first) is None
    assert damaged_artifacts(store, rows_of(store)) == []
    assert missing_artifacts(store, rows_of(store)) == [result]
    assert (Path(store.root) / "damaged" / result.name).read_bytes() == content


def test_a_file_that_is_damaged_again_is_kept_beside_the_earlier_one(store: Store) -> None:
    file = Unsound(rows_of(store)[0]["key"], "ranks")
    for content in (b"first", b"second", b"third"):
        store.write(file.name, content)
        store.quarantine(file.name)
    names = (f"damaged/{file.name}{number}" for number in ("", ".1", ".2"))
    assert [store.read(name) for name in names] == [b"first", b"second", b"third"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_whose_sum_no_record_has_is_damaged(kind: Kind, store: Store) -> None:
    """As one that a confirmation before this one has left, which could not write its own."""
    first, *others = rows_of(store)
    facts = json.loads(first["artifacts"])
    del facts["sha256"][kind]
    row = {**first, "artifacts": json.dumps(facts)}
    with pytest.raises(DamagedError):
        READERS[kind](store, row)
    assert damaged_artifacts(store, [row, *others]) == [Unsound(first["key"], kind)]


def test_a_repair_sets_damaged_files_aside(store: Store) -> None:
    first, second, _ = rows_of(store)
    named = {artifact_name("ranks", first["key"]), artifact_name("network", second["key"])}
    for name in named:
        spoil(Path(store.root) / name, "a bit")
    assert set(repair("s", Path(store.root).parent).damaged) == named
    assert {file.name for file in missing_artifacts(store, rows_of(store))} == named
    assert repair("s", Path(store.root).parent).damaged == []


def test_what_is_no_json_in_the_column_is_one_line(store: Store) -> None:
    for text in ("{", "[]", '{"sha256": 3}', "{}"):
        row = {**rows_of(store)[0], "artifacts": text}
        with pytest.raises(StoreError, match=f"column artifacts of trial {row['key']} cannot be read"):
            read_ranks(store, row)


def test_sound_files_and_trials_that_have_none_are_passed_over(
    tmp_path: Path, study: Study, store: Store
) -> None:
    assert damaged_artifacts(store, rows_of(store)) == missing_artifacts(store, rows_of(store)) == []
    rows = [trial_row(record(study, 0)), trial_row(record(study, 0, seed=1, status="diverged"))]
    store = Store.open(tmp_path)
    assert damaged_artifacts(store, rows) == missing_artifacts(store, rows) == []
    assert [row["artifacts"] for row in rows] == [None, None]


def test_equal_networks_are_equal_bytes(tmp_path: Path, study: Study) -> None:
    """The library writes the metadata in another order every time."""
    network, trial = torch.nn.Linear(3, 2), record(study, 0, seed=1).trial
    store = Store.open(tmp_path)
    (result,) = {save_model(store, trial, network, Inputs((3,), 2, "tensor")) for _ in range(16)}
    saved = read_model(store, a_row(trial.key, network=result))
    assert saved is not None and saved.trial == trial


def test_the_files_of_a_member_that_has_a_record_stay_as_they_are(tmp_path: Path, study: Study) -> None:
    store = Store.open(tmp_path)
    first, second = record(study, 0, seed=1).trial, record(study, 0, seed=2).trial
    keeper = StoreKeeper(store, recorded=frozenset({first.key}))
    for trial in (first, second):
        keeper.save_ranks(trial, torch.zeros(4, 2, dtype=torch.int64), "images")
        keeper.save_guesses(trial, torch.zeros(2, 1, dtype=torch.int64), "images")
        keeper.save_model(trial, torch.nn.Linear(3, 2), Inputs((3,), 2, "tensor"))
    assert store.names("ranks") == store.names("guesses") == [f"{second.key}.parquet"]
    assert store.names("models") == [f"{second.key}.safetensors"]
