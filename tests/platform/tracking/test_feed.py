"""The thread that fills MLflow while MLflow fails now and then."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from feeds import start_feed
from made_records import filled
from made_records import make_record as record

from topk_platform import Study
from topk_platform.records import Ledger, Row, Store
from topk_platform.specs import TrialRecord
from topk_platform.tracking import writing


class Held:
    """An experiment that keeps how trials ended, by their keys, and when they started; and the tables."""

    held: ClassVar[dict[str, Row]] = {}
    files: ClassVar[list[Mapping[str, str]]] = []

    def __init__(self, *_: object) -> None:
        self.started = {key: int(row["started"].timestamp()) for key, row in self.held.items()}

    def complete(self) -> Iterator[str]:
        yield from self.held

    def remove(self, keys: Collection[str]) -> None:
        for key in keys:
            del self.held[key], self.started[key]

    def write_trial(self, row: Row, epochs: Sequence[Row]) -> None:
        assert row["key"] not in self.held
        self.held[row["key"]] = row

    def write_tables(self, files: Mapping[str, str], pictures: object) -> None:
        self.files.append(files)


@pytest.fixture(autouse=True)
def experiment(monkeypatch: pytest.MonkeyPatch) -> type[Held]:
    monkeypatch.setattr(Held, "held", {})
    monkeypatch.setattr(Held, "files", [])
    monkeypatch.setattr(writing, "Experiment", Held)
    return Held


def test_results_that_come_first_are_written_after_a_failure(
    experiment: type[Held], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, failed = threading.Event(), threading.Event()

    def complete(self: Held) -> Iterator[str]:
        assert failing.wait(60)
        if not failed.is_set():
            failed.set()
            raise OSError("no route")
        return iter(())

    monkeypatch.setattr(experiment, "complete", complete)
    feed = start_feed(None, Ledger.open(Store.open(tmp_path), "s"))
    feed.put_files({"table.md": "# s"})
    failing.set()
    assert failed.wait(60)
    assert feed.close() == ""
    assert experiment.files == [{"table.md": "# s"}]


def _train_again(ledger: Ledger, study: Study, failed: TrialRecord) -> TrialRecord:
    again = dataclasses.replace(failed, status="completed", started=failed.started + 60)
    with ledger.writing(study) as writer:
        writer.remove([failed.trial.key])
        writer.put(again)
    return again


def test_a_trial_that_was_trained_again_without_mlflow_is_written_again(
    experiment: type[Held], tmp_path: Path, study: Study
) -> None:
    """As by `topk run --mlflow none --retry-failed`."""
    failed, other = record(study, 0, status="failed"), record(study, 1)
    ledger = filled(tmp_path, study, failed, other)
    assert start_feed(None, ledger).close() == ""
    before = dict(experiment.held)
    _train_again(ledger, study, failed)
    for _ in range(2):
        assert start_feed(None, ledger).close() == ""
        assert [row["status"] for row in experiment.held.values()] == ["completed"] * 2
    assert experiment.held[other.trial.key] is before[other.trial.key]


def test_a_trial_that_the_ledger_lacked_for_a_while_is_written_again(
    experiment: type[Held], tmp_path: Path, study: Study
) -> None:
    """As after an interrupted run without MLflow that had not yet trained the failed trial again."""
    failed = record(study, 0, status="failed")
    ledger = filled(tmp_path, study, failed)
    assert start_feed(None, ledger).close() == ""
    with ledger.writing(study) as writer:
        writer.remove([failed.trial.key])
    feed = start_feed(None, ledger)
    feed.put(_train_again(ledger, study, failed))
    assert feed.close() == ""
    assert [row["status"] for row in experiment.held.values()] == ["completed"]
