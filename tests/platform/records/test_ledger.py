from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from topk_platform import Study
from topk_platform.code_version import code_version
from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.records import Ledger, Store, last_counted, read_history
from topk_platform.specs import Trial, TrialRecord

Make = Callable[..., TrialRecord]


def open_ledger(place: Path) -> Ledger:
    return Ledger.open(Store.open(place), "s")


def fill(place: Path, study: Study, records: list[TrialRecord]) -> Ledger:
    ledger = open_ledger(place)
    with ledger.writing(study):
        for record in records:
            ledger.append(record)
    return ledger


def test_plain_tools_read_it(tmp_path: Path, study: Study, record: Make) -> None:
    fill(tmp_path, study, [record(study, 0), record(study, 0, seed=1), record(study, 1, status="pruned")])
    trials = ds.dataset(tmp_path / "s" / "trials").to_table()
    epochs = ds.dataset(tmp_path / "s" / "epochs").to_table()
    assert (len(trials), len(epochs)) == (3, 6)
    assert trials.column_names == [
        *(
            "key",
            "study",
            "arm",
            "arm_id",
            "regime",
            "model",
            "loss",
            "phase",
            "number",
            "seed",
            "status",
            "reason",
        ),
        *("config", "param.learning_rate"),
        *(f"{split}.{m}" for split in ("validation", "test") for m in study.metrics),
        *("train_seconds", "epochs", "started", "ended", "code_version", "dataset_fingerprint", "versions"),
    ]
    assert epochs.column_names == [
        "key", "epoch", "train.loss", *(f"validation.{m}" for m in study.metrics), "seconds", "learning_rate",
        "train.gradient_density", "step_seconds",
    ]  # fmt: skip
    pattern = str(tmp_path / "s" / "trials" / "*.parquet")
    counted = duckdb.sql(
        f"""select phase, count(*), avg("test.top3") from '{pattern}' group by phase order by phase"""
    )
    assert counted.fetchall() == [("confirm", 1, 0.5), ("search", 2, None)]
    row = trials.to_pylist()[0]
    assert Trial.from_json(row["config"]).key == row["key"]
    assert row["started"].timestamp() >= 1000
    assert json.loads(row["versions"]) == {"torch": "x"}
    assert pq.read_schema(min((tmp_path / "s" / "trials").iterdir())).metadata[b"topk.schema_version"] == b"1"


def test_a_trial_written_twice_is_there_once(tmp_path: Path, study: Study, record: Make) -> None:
    ledger = fill(tmp_path, study, [record(study, 0), record(study, 0)])
    assert len(ledger.rows()) == 1
    assert len(ledger.read("epochs")) == 2


def test_a_new_loss_widens_every_part(tmp_path: Path, study: Study, wider_study: Study, record: Make) -> None:
    fill(tmp_path, study, [record(study, n) for n in range(3)])
    ledger = fill(tmp_path, wider_study, [record(wider_study, 0, arm=1)])
    schemas = {tuple(pq.read_schema(path).names) for path in (tmp_path / "s" / "trials").iterdir()}
    assert len(schemas) == 1
    table = ds.dataset(tmp_path / "s" / "trials").to_table()
    assert len(table) == 4
    assert sorted(str(value) for value in table["param.samples"].to_pylist()) == ["3", "None", "None", "None"]
    assert "a" in table["param.mode"].to_pylist()
    fill(tmp_path, study, [])  # and a narrower study takes no column away
    assert "param.samples" in ds.dataset(tmp_path / "s" / "trials").schema.names
    assert len(ledger.rows()) == 4


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.mark.parametrize("survives", range(14))
def test_a_kill_anywhere_in_compaction_loses_and_doubles_nothing(
    tmp_path: Path, study: Study, record: Make, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    fill(tmp_path, study, [record(study, n) for n in range(3)])
    before = sorted(row["key"] for row in open_ledger(tmp_path).rows())
    left = [survives]

    def counted(name: str) -> None:
        original = getattr(Store, name)

        def call(self: Store, *args: object) -> object:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return original(self, *args)

        monkeypatch.setattr(Store, name, call)

    with monkeypatch.context() as patch:
        monkeypatch = patch
        for name in ("write", "delete"):
            counted(name)
        try:
            ledger = open_ledger(tmp_path)
            with ledger.writing(study):
                ledger.compact()
        except Killed:
            pass
    reader = open_ledger(tmp_path)  # as `topk table` would find it at that moment
    assert sorted(reader.keys()) == before
    assert len(reader.read("epochs", ["learning_rate"])) == 6
    ledger = fill(tmp_path, study, [])
    assert sorted(row["key"] for row in ledger.rows()) == before
    assert len(ledger.read("epochs")) == 6
    assert not ledger.store.exists("compaction.json")


def test_a_reader_whose_parts_are_compacted_away_lists_them_again(
    tmp_path: Path, study: Study, wider_study: Study, record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = fill(tmp_path, study, [record(study, n) for n in range(3)])
    listed = [ledger.store.names("trials", ".parquet")]
    with ledger.writing(study):
        ledger.compact()
    names = Store.names
    monkeypatch.setattr(Store, "names", lambda *args: listed.pop() if listed else names(*args))
    assert len(ledger.rows()) == 3
    assert not listed


def test_columns_of_another_type_are_read_beside_their_merged_part(
    tmp_path: Path, study: Study, record: Make
) -> None:
    """Compaction widens a column's type; until the old part is gone, both types are there."""
    ledger = fill(tmp_path, study, [record(study, 0)])
    (part,) = (tmp_path / "s" / "trials").iterdir()
    table = pq.read_table(part)
    place = table.schema.get_field_index("param.learning_rate")
    text = table["param.learning_rate"].cast("string")
    pq.write_table(
        table.set_column(place, "param.learning_rate", text), part.with_name("part-merged.parquet")
    )
    (row,) = ledger.rows()
    assert row["param.learning_rate"] == "0.1"


def test_epochs_of_a_trial_that_never_ended_do_not_stay(tmp_path: Path, study: Study, record: Make) -> None:
    ledger = fill(tmp_path, study, [record(study, 0), record(study, 1)])
    cut_off = record(study, 1).trial.key
    ledger.store.delete(f"trials/{cut_off}.parquet")
    with ledger.writing(study):
        ledger.compact(1)
        ledger.append(record(study, 1))
    assert len(ledger.read("epochs")) == 4
    assert len(ledger.rows()) == 2


def test_one_writer_at_a_time(tmp_path: Path, study: Study) -> None:
    first, second = open_ledger(tmp_path), open_ledger(tmp_path)
    with first.writing(study), pytest.raises(StoreError, match="another process"), second.writing(study):
        pytest.fail("two writers")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ({"study": "t", "schema_version": 1}, "records of study 't'"),
        ({"study": "s", "schema_version": 2}, "schema version 2; this program knows up to 1"),
        ({"study": "s"}, "cannot be read"),
        ([], "cannot be read"),
    ],
)
def test_a_foreign_folder_is_refused(tmp_path: Path, mark: object, message: str) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "ledger.json").write_text(json.dumps(mark))
    with pytest.raises(StoreError, match=message):
        open_ledger(tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("")
    with pytest.raises(StoreError, match="holds no ledger"):
        open_ledger(tmp_path)


def test_history_takes_one_code_version_and_one_dataset(tmp_path: Path, study: Study, record: Make) -> None:
    ledger = fill(tmp_path, study, [record(study, 0), record(study, 1, code="old"), record(study, 0, seed=1)])
    arm_id = study.arm_id(study.arms[0])
    (history,) = read_history(ledger, study, {arm_id: Identity("c")}).values()
    assert list(history.search) == [0]
    assert list(history.confirm) == [(0, 1)]
    assert history.ended()[0].curve == {1: 0.5, 2: 0.5}
    assert history.outdated == {"other code": 1}
    (other,) = read_history(ledger, study, {arm_id: Identity("c", "another")}).values()
    assert not other.rows()
    assert other.outdated == {"other code": 1, "other data": 2}


def test_history_takes_one_environment_unless_any_will_do(tmp_path: Path, study: Study, record: Make) -> None:
    """Seen: Optuna 5.0 and 4.9 suggest otherwise, and another processor gave 99.8 where the table had 99.9."""
    old, new = {"torch": "x", "machine": "m"}, {"torch": "y", "machine": "m"}
    rows = [record(study, number, versions=old if number else new) for number in range(3)]
    ledger, arm_id = fill(tmp_path, study, rows), study.arm_id(study.arms[0])
    (history,) = read_history(ledger, study, {arm_id: Identity("c", "f", new)}).values()
    assert list(history.search) == [0]
    assert history.outdated == {"torch x in place of y": 2}
    (mixed,) = read_history(ledger, study, {arm_id: Identity("c", "f")}).values()
    assert sorted(mixed.search) == [0, 1, 2]
    assert not mixed.outdated


def test_the_ledger_notes_what_counted_for_those_who_read_it_later(
    tmp_path: Path, study: Study, record: Make
) -> None:
    ledger, arm_id = fill(tmp_path, study, [record(study, 0)]), study.arm_id(study.arms[0])
    assert last_counted(ledger, study)[arm_id] == Identity(code_version(study.arms[0]))
    with ledger.writing(study):
        ledger.identify({arm_id: Identity("old code", "f", {"torch": "x"})})
    found = last_counted(open_ledger(tmp_path), study)
    assert found == {arm_id: Identity(code_version(study.arms[0]), "f", {"torch": "x"})}


def test_what_is_confirmed_is_the_configuration_that_is_best_now(
    tmp_path: Path, study: Study, record: Make
) -> None:
    rows = [
        record(study, 0, top3=0.5),
        record(study, 0, seed=1),
        record(study, 0, seed=2),
        record(study, 0, seed=3),
    ]
    later = [record(study, 3, top3=0.6), record(study, 3, seed=1), record(study, 3, seed=2, status="failed")]
    counted = {study.arm_id(study.arms[0]): Identity("c")}
    (history,) = read_history(fill(tmp_path, study, rows + later), study, counted).values()
    assert list(history.confirmations(trials=3, seeds=2)) == [1, 2]
    found = history.confirmations(trials=4, seeds=5)
    assert {seed: (row["number"], row["status"]) for seed, row in found.items()} == {
        1: (3, "completed"),
        2: (3, "failed"),
    }
