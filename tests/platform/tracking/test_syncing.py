"""What `topk sync` hands over, and what stays noted as undone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from made_records import filled
from made_records import make_record as record

from topk_platform import Study
from topk_platform.errors import UserError
from topk_platform.records import DamagedError, Store, Undone
from topk_platform.tracking import Feed, sync

BEHIND = "MLflow is behind: no answer; tried twice"


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """The tables that were handed to MLflow, which has written all."""
    result: list[Mapping[str, str]] = []
    monkeypatch.setattr(Feed, "start", lambda _: None)
    monkeypatch.setattr(Feed, "put_files", lambda _, files, pictures: result.append(files))
    monkeypatch.setattr(Feed, "close", lambda _: "")
    return result


@pytest.fixture
def store(tmp_path: Path, study: Study) -> Store:
    ledger = filled(tmp_path, study, record(study, 0))
    ledger.store.write("tables/table.md", b"# s")
    return ledger.store


def test_a_picture_that_somebody_keeps_beside_the_tables_is_left_out(
    tmp_path: Path, store: Store, handed: list[Mapping[str, str]]
) -> None:
    store.write("tables/plot.png", b"\x89PNG\xff")
    sync("s", store=tmp_path)
    assert handed == [{"table.md": "# s"}]


@pytest.mark.parametrize("content", [b'{"a": ', b'{"a": {"name": "a"}}', b"[]", b"\xff"])
def test_damaged_results_of_arms_are_one_line_with_the_remedy(
    content: bytes, tmp_path: Path, store: Store
) -> None:
    store.write("tables/arms.json", content)
    with pytest.raises(DamagedError, match=r"tables/arms\.json is damaged; `topk run s --store "):
        sync("s", store=tmp_path)


def test_mlflow_stays_noted_as_behind_until_all_is_written(
    tmp_path: Path, store: Store, handed: list[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Undone(tracking=BEHIND).note(store)
    with monkeypatch.context() as patch:
        patch.setattr(Feed, "close", lambda _: BEHIND)
        with pytest.raises(UserError, match=BEHIND):
            sync("s", store=tmp_path)
    assert Undone.read(store).tracking == BEHIND
    sync("s", store=tmp_path)
    assert Undone.read(store).tracking == ""


def test_a_sync_that_would_fill_nothing_is_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(UserError, match="mlflow must name "):
        sync("s", store=tmp_path, mlflow_uri="none")
