from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pyarrow.parquet as pq
import pytest
from made_records import commit, filled, make_wider_study
from made_records import make_record as record

from topk_platform import Study
from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.records.history import last_counted, read_history, results_of
from topk_platform.records.ledger import Ledger, nothing_of
from topk_platform.records.rows import Row
from topk_platform.records.snapshot import is_current, write_snapshot
from topk_platform.records.storage import delta
from topk_platform.records.storage.checked_json import Mark, with_checksum
from topk_platform.records.storage.store import MARK, Store
from topk_platform.records.writer import Writer, ledger_schema
from topk_platform.specs import Trial
from topk_platform.versions import version_of
from topk_studies import digits


def open_ledger(folder: Path) -> Ledger:
    return Ledger.open(Store.open(folder), "s")


def test_plain_tools_read_the_snapshot(tmp_path: Path, study: Study) -> None:
    records = [record(study, 0), record(study, 0, seed=1), record(study, 1, status="pruned")]
    write_snapshot(filled(tmp_path, study, *records), {records[0].trial.key, records[1].trial.key})
    tables = tmp_path / "s" / "tables"
    trials, epochs = pq.read_table(tables / "trials.parquet"), pq.read_table(tables / "epochs.parquet")
    assert (len(trials), len(epochs)) == (3, 6)
    counted = duckdb.sql(
        f"""select phase, count(*), avg("test.top3"), bool_and(counts) from '{tables / "trials.parquet"}'
        group by phase order by phase"""
    )
    assert counted.fetchall() == [("confirm", 1, 0.5, True), ("search", 2, None, False)]
    row = trials.to_pylist()[0]
    assert Trial.from_json(row["config"]).key == row["key"]
    assert row["started"].timestamp() >= 1000
    assert json.loads(row["versions"]) == {"torch": "x"}
    assert trials.schema.metadata[b"topk.schema_version"] == b"2"


def test_a_snapshot_that_another_program_wrote_again_is_not_current(tmp_path: Path, study: Study) -> None:
    ledger = filled(tmp_path, study, record(study, 0))
    write_snapshot(ledger, ())
    assert is_current(ledger, ()) and not is_current(ledger, ledger.keys())
    file = tmp_path / "s" / "tables" / "trials.parquet"
    duckdb.sql(f"copy (select * from '{file}') to '{file}.new' (format parquet)")
    Path(f"{file}.new").replace(file)
    assert not is_current(ledger, ())


def test_what_a_study_gains_or_loses_moves_no_old_row(tmp_path: Path, study: Study) -> None:
    """A parameter that is a number in one study and a word in the next, and metrics that only one of them has."""
    filled(tmp_path, study, *(record(study, n) for n in range(3)))
    wider = make_wider_study()
    ledger = filled(tmp_path, wider, record(wider, 0, arm=1))
    assert len(filled(tmp_path, study).rows()) == 4
    write_snapshot(ledger, ())
    trials = pq.read_table(tmp_path / "s" / "tables" / "trials.parquet")
    assert Counter(map(str, trials["param.samples"].to_pylist())) == {"3": 1, "None": 3}
    assert "a" in trials["param.mode"].to_pylist()
    assert trials["param.learning_rate"].to_pylist() == [0.1] * 4


def test_trials_that_come_fast_share_a_commit(tmp_path: Path, study: Study) -> None:
    ledger, sizes, first = open_ledger(tmp_path), [], threading.Event()
    with ledger.writing(study) as writer:

        def committed(records: Any) -> None:
            sizes.append(len(records))
            first.wait()  # the disk is slow, and meanwhile all the others end

        writer.committed = committed
        for number in range(50):
            writer.put(record(study, number))
        first.set()
    assert sum(sizes) == 50
    assert len(sizes) <= 3
    assert len(ledger.keys()) == 50


def lost_answer(write: Any, *arguments: Any, **keywords: Any) -> None:
    write(*arguments, **keywords)
    raise OSError("the connection was reset")


def refusal(_write: Any, *_arguments: Any, **_keywords: Any) -> None:
    raise OSError("No space left on device")


@pytest.mark.parametrize(
    ("name", "fault", "times"),
    [("write_deltalake", lost_answer, 1), ("write_deltalake", refusal, 2), ("sync", refusal, 2)],
    ids=["the answer is lost", "the store refuses", "the disk refuses"],
)
def test_a_commit_that_fails_at_first_is_made_once(
    name: str, fault: Any, times: int, tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, usual, failures = open_ledger(tmp_path), getattr(delta, name), iter(range(times))

    def shaky(*arguments: Any, **keywords: Any) -> None:
        (usual if next(failures, None) is None else partial(fault, usual))(*arguments, **keywords)

    monkeypatch.setattr(delta, name, shaky)
    with ledger.writing(study) as writer:
        writer._pauses = [0.0] * 3
        writer.put(record(study, 0))
        writer.put(record(study, 1))
    assert next(failures, None) is None
    assert len(ledger.keys()) == 2
    assert len(ledger.read("epochs")) == 4


def test_parts_that_cannot_be_put_together_stop_nothing(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("compact", "tidy"):
        monkeypatch.setattr(delta.Writing, name, Mock(side_effect=StoreError("No space left on device")))
    assert len(filled(tmp_path, study, record(study, 0)).keys()) == 1
    assert "were not merged: No space left on device" in caplog.text


class Panic(BaseException):
    """As deltalake's own, which an error within the library raises: no Exception."""


@pytest.mark.parametrize("error", [Panic("out of memory"), OSError("No space left on device")])
def test_an_error_that_stays_ends_the_writing_and_the_next_handing_over_in_one_line(
    error: BaseException, tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        with open_ledger(tmp_path).writing(study) as writer:
            writer._pauses = [0.0]
            writer.put(record(study, 0))
            writer.join(60)
            writer.put(record(study, 1))
            pytest.fail("nobody would have written it")

    monkeypatch.setattr(delta, "write_deltalake", Mock(side_effect=error))
    with pytest.raises(StoreError, match=rf"^store '.*' cannot be written: [^\n]*{error}$"):
        write()
    assert open_ledger(tmp_path).keys() == []


def test_no_cause_whatever_loses_a_trial_without_a_word(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that ends early, and a library that commits other rows than it was given."""
    ledger, write = open_ledger(tmp_path), delta.write_deltalake

    def lose(writer: Writer) -> None:
        writer._queue.get()

    def write_half(table: Any, rows: Any, **keywords: Any) -> None:
        write(table, rows.slice(0, 1), **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_waiting", lose)
        with pytest.raises(StoreError, match="handed over to the ledger, but only 0 of them were committed"):
            filled(tmp_path, study, record(study, 0))
    monkeypatch.setattr(delta, "write_deltalake", write_half)
    with (
        pytest.raises(StoreError, match="3 rows were written to the ledger, but 1 were committed"),
        ledger.writing(study) as writer,
    ):
        commit(writer.table, record(study, 1))


@pytest.mark.parametrize("back", [False, True])
def test_who_has_interrupted_waits_for_one_more_try_alone(
    back: bool, tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses are longer than the test may take; a store that is back by then has all of it."""
    ledger, write, refused = open_ledger(tmp_path), delta.write_deltalake, threading.Event()

    def refuse(*arguments: Any, **keywords: Any) -> None:
        if refused.is_set() and back:
            write(*arguments, **keywords)
            return
        refused.set()
        raise OSError("Connection refused")

    monkeypatch.setattr(delta, "write_deltalake", refuse)
    expectation = nullcontext() if back else pytest.raises(StoreError, match="Connection refused")
    with expectation, ledger.writing(study) as writer:
        writer._pauses = [3600.0] * 8
        writer.put(record(study, 0))
        assert refused.wait(60)
        writer.hurry()
        writer.flush()
        assert (writer.error is None) == back
    assert len(ledger.keys()) == back


@pytest.mark.slow
def test_a_server_that_refuses_one_put_in_twenty_loses_and_doubles_nothing(
    busy_object_store: Any, study: Study
) -> None:
    ledger = Ledger.open(Store.open(busy_object_store.bucket()), "s")
    with ledger.writing(study) as writer:
        for number in range(30):  # one after the other, so that each is a commit
            commit(writer.table, record(study, number))
    assert busy_object_store.refused >= 3
    assert sorted(row["number"] for row in ledger.rows()) == list(range(30))
    assert len(ledger.read("epochs")) == 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_driver_that_was_taken_over_from_writes_nothing_more(
    kind: str, tmp_path: Path, study: Study, request: pytest.FixtureRequest
) -> None:
    """As a driver is whose machine slept for an hour, and who cannot know that its lease is another's."""
    folder = Store.open(tmp_path if kind == "folder" else request.getfixturevalue("bucket"))
    ledger = Ledger.open(folder, "s")

    def overtaken() -> None:
        there = threading.Event()
        with ledger.writing(study) as old:
            old.committed = lambda _records: there.set()
            old.put(record(study, 0))
            there.wait()
            new = delta.Writing(ledger.store, ledger_schema(study.metrics))
            old.put(record(study, 2))
            old.flush()
            commit(new, record(study, 1))

    with pytest.raises(StoreError, match="another process has taken over"):
        overtaken()
    assert sorted(row["number"] for row in ledger.rows()) == [0, 1]
    write_snapshot(ledger, ())
    assert Ledger.open(folder, "s").exists
    assert ledger.store.names("tables") == ["epochs.parquet", "trials.parquet"]


def test_forgotten_trials_take_their_epochs_with_them(tmp_path: Path, study: Study) -> None:
    ledger = filled(tmp_path, study, *(record(study, n) for n in range(3)))
    gone = record(study, 1).trial.key
    with ledger.writing(study) as writer:
        writer.table.delete([gone])
    assert gone not in ledger.keys()  # noqa: SIM118
    assert len(ledger.read("epochs")) == 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("thesis.tex", b"", "holds no ledger"),
        (MARK, with_checksum(asdict(Mark("t"))), r"records of study 't'"),
        (MARK, with_checksum({"study": "s", "schema_version": 3}), "version 3"),
        (MARK, with_checksum({"study": "s"}), "ledger.json is damaged"),
        (MARK, json.dumps(asdict(Mark("s"))).encode(), "ledger.json is damaged"),  # without a checksum
    ],
)
def test_a_foreign_folder_is_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / name).write_bytes(content)
    with pytest.raises(StoreError, match=message):
        open_ledger(tmp_path)


def test_history_takes_one_code_version_and_one_dataset(tmp_path: Path, study: Study) -> None:
    ledger = filled(tmp_path, study, record(study, 0), record(study, 1, code="old"), record(study, 0, seed=1))
    arm_id = study.arm_id(study.arms[0])
    (history,) = read_history(ledger, study, {arm_id: Identity("c")}).values()
    assert list(history.search) == [0]
    assert list(history.confirm) == [(0, 1)]
    assert history.ended()[0].curve == {1: 0.5, 2: 0.5}
    assert history.outdated == {"other code": 1}
    (other,) = read_history(ledger, study, {arm_id: Identity("c", "another")}).values()
    assert not other.rows()
    assert other.outdated == {"other code": 1, "other data": 2}


def test_the_ledger_notes_what_counted_for_those_who_read_it_later(tmp_path: Path, study: Study) -> None:
    ledger, arm_id = filled(tmp_path, study, record(study, 0)), study.arm_id(study.arms[0])
    assert last_counted(ledger, study)[arm_id] == Identity(version_of(study.arms[0]))
    with ledger.writing(study):
        ledger.identify({arm_id: Identity("old code", "f", {"torch": "x"})})
    result = last_counted(open_ledger(tmp_path), study)
    assert result == {arm_id: Identity(version_of(study.arms[0]), "f", {"torch": "x"})}


def test_what_is_confirmed_is_the_configuration_that_is_best_now(tmp_path: Path, study: Study) -> None:
    rows = [record(study, 0, top3=0.5), *(record(study, 0, seed=seed) for seed in (1, 2, 3))]
    later = [record(study, 3, top3=0.6), record(study, 3, seed=1), record(study, 3, seed=2, status="failed")]
    counted = {study.arm_id(study.arms[0]): Identity("c")}
    histories = read_history(filled(tmp_path, study, *rows, *later), study, counted)

    def confirmations(trials: int, seeds: int) -> dict[int, Row]:
        (results,) = results_of(study.with_budget(trials, seeds), histories).values()
        return results.confirmations()

    assert list(confirmations(trials=3, seeds=2)) == [1, 2]
    result = confirmations(trials=4, seeds=5)
    assert {seed: (row["number"], row["status"]) for seed, row in result.items()} == {
        1: (3, "completed"),
        2: (3, "failed"),
    }


def test_what_a_store_holds_instead_of_a_study_is_named(tmp_path: Path) -> None:
    assert "no such folder" in str(nothing_of(tmp_path / "typo", "digits"))
    for name, said in (("birds", "it holds birds"), ("digits-smoke", "add --smoke")):
        filled(tmp_path, replace(digits(), name=name))
        assert said in str(nothing_of(tmp_path, "digits"))


def test_the_folder_of_a_study_is_no_store(tmp_path: Path) -> None:
    filled(tmp_path, digits())
    with pytest.raises(StoreError, match="is the folder of one study: give --store the folder that holds it"):
        Ledger.open(Store.open(tmp_path / "digits"), "digits")
