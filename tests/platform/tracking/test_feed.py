"""The thread that fills MLflow while MLflow fails now and then, and what `topk sync` hands over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest
from feeds import fill, runs, start_feed
from hypothesis import given
from hypothesis import strategies as st
from labs import until
from made_records import filled, make_study
from made_records import make_record as record

from topk_platform import Study
from topk_platform.errors import UserError
from topk_platform.records.ledger import Ledger
from topk_platform.records.rows import Row
from topk_platform.records.run_notes import Unfinished
from topk_platform.records.storage.store import Store
from topk_platform.specs import TrialRecord
from topk_platform.tracking import writing
from topk_platform.tracking.feed import Feed, sync, tracking_uri

BEHIND = "MLflow is behind: no answer; tried twice"


class Shaky:
    """MLflow in memory: what it holds, and whether each of the next calls fails."""

    def __init__(self, fails: Iterable[bool] = ()) -> None:
        self.held: dict[str, Row] = {}
        self.files: Mapping[str, str] = {}
        self.pictures: object = None
        self.fails: Iterator[bool] = iter(fails)

    def __call__(self, *_: object) -> Shaky:
        """Open the experiment."""
        self._fail()
        return self

    def _fail(self) -> None:
        if next(self.fails, False):
            raise ConnectionError("the server went away")

    def has(self, row: Row) -> bool:
        return row["key"] in self.held

    def write_trial(self, row: Row, epochs: Sequence[Row]) -> None:
        self._fail()
        assert [epoch["epoch"] for epoch in epochs] == [1, 2]
        self.held[row["key"]] = row

    def write_tables(self, files: Mapping[str, str], pictures: object) -> None:
        self._fail()
        self.files, self.pictures = files, pictures


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ledger, list[TrialRecord]]:
    """A ledger of four trials, and their records."""
    study = make_study()
    ended = [record(study, number) for number in range(4)]
    return filled(tmp_path_factory.mktemp("four"), study, *ended), ended


@given(fails=st.lists(st.booleans(), max_size=8), put=st.integers(0, 4), tables=st.booleans())
def test_nothing_is_lost_whichever_calls_fail(
    four: tuple[Ledger, list[TrialRecord]], fails: list[bool], put: int, tables: bool
) -> None:
    """What a try could not write, a later one writes: at the latest the last one, which is made at the end."""
    ledger, ended = four
    mlflow = Shaky([*fails, False])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "Experiment", mlflow)
        feed = start_feed(None, ledger, pause=0.0)
        for one in ended[:put]:
            feed.put(one)
        files = {"table.md": "# s"} if tables else None
        for _ in range(len(fails) + 1):  # as runs that follow: each makes at least one try
            behind = feed.close(files)
            if not behind:
                break
            assert behind == "MLflow is behind: the server went away"
            feed = start_feed(None, ledger, pause=0.0)
    assert not behind
    assert mlflow.held.keys() == set(ledger.keys())
    assert mlflow.files == (files or {})


@pytest.mark.parametrize("at_once", [False, True])
def test_a_trial_that_ends_later_is_written_at_once_and_tables_that_fail_once_more(
    at_once: bool, four: tuple[Ledger, list[TrialRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is drawn takes too long if only seconds are left."""
    (ledger, ended), mlflow = four, Shaky()
    monkeypatch.setattr(writing, "Experiment", mlflow)
    feed = Feed("uri", ledger, pictures=dict)
    feed.pause = 0.0
    feed.start()
    for later in (ended[0], ended[3]):
        mlflow.held.pop(later.trial.key, None)
        feed.put(later)
        until(lambda: len(mlflow.held) == 4, "it is written")
    mlflow.fails = iter([True])
    assert feed.close({"table.md": "# s"}, at_once=at_once) == ""
    assert mlflow.files and mlflow.pictures is (None if at_once else dict)


def train_again(ledger: Ledger, study: Study, failed: TrialRecord) -> TrialRecord:
    again = replace(failed, status="completed", started=failed.started + 60)
    with ledger.writing(study) as writer:
        writer.table.delete([failed.trial.key])
        writer.put(again)
    return again


@pytest.mark.parametrize("lacked", [False, True])
def test_a_trial_that_was_trained_again_without_mlflow_is_written_again(
    tmp_path: Path, study: Study, lacked: bool
) -> None:
    """As by `topk run --mlflow none --retry-failed`, or if the ledger lacked the trial when the next run began."""
    failed, other = record(study, 0, status="failed"), record(study, 1)
    ledger, uri = filled(tmp_path, study, failed, other), tracking_uri(tmp_path)
    fill(start_feed(tmp_path, ledger), {"table.md": "# s"})
    before = {run.data.tags["topk.number"]: run.info.run_id for run in runs(uri, "topk.key")}
    if lacked:
        with ledger.writing(study) as writer:
            writer.table.delete([failed.trial.key])
        feed = start_feed(tmp_path, ledger)
        feed.put(other)
        feed.put(train_again(ledger, study, failed))
        assert feed.close() == ""
    else:
        train_again(ledger, study, failed)
    for _ in range(2):
        assert start_feed(tmp_path, ledger).close() == ""
        after = {run.data.tags["topk.number"]: run for run in runs(uri, "topk.key")}
        assert [run.data.tags["topk.status"] for run in after.values()] == ["completed"] * 2
    assert after["0"].info.run_id != before["0"] and after["1"].info.run_id == before["1"]


@pytest.fixture
def store(tmp_path: Path, study: Study) -> Store:
    """A study's folder with a trial and a table."""
    ledger = filled(tmp_path, study, record(study, 0))
    ledger.store.write("tables/table.md", b"# s")
    return ledger.store


def test_sync_hands_over_the_tables_and_nothing_that_somebody_keeps_beside_them(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow stays noted as behind until all is written."""
    store.write("tables/plot.png", b"\x89PNG\xff")
    mlflow = Shaky(repeat(True))
    monkeypatch.setattr(writing, "Experiment", mlflow)
    monkeypatch.setattr(Feed, "pause", 0.0)
    Unfinished(tracking=BEHIND).note(store)
    with pytest.raises(
        UserError, match="not everything could be written: MLflow is behind: the server went away"
    ):
        sync("s", store=tmp_path)
    assert Unfinished.read(store).tracking == BEHIND
    mlflow.fails = iter(())
    sync("s", store=tmp_path)
    assert Unfinished.read(store).tracking == "" and mlflow.files == {"table.md": "# s"}


@pytest.mark.parametrize("content", [b'{"a": ', b'{"a": {"name": "a"}}', b"[]", b"\xff"])
def test_damaged_results_of_arms_are_one_line_with_the_remedy(
    content: bytes, tmp_path: Path, store: Store
) -> None:
    store.write("tables/arms.json", content)
    with pytest.raises(UserError, match=r"^tables/arms\.json is damaged: the next run "):
        sync("s", store=tmp_path)


def test_a_sync_that_would_fill_nothing_is_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(UserError, match="mlflow must name "):
        sync("s", store=tmp_path, mlflow_uri="none")
    with pytest.raises(UserError, match="holds nothing of study 'other'"):
        sync("other", store=tmp_path)
