"""Trials by their keys, in stores that hold unreadable studies too."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from made_records import filled
from made_records import make_record as record

from topk_platform import Study
from topk_platform.errors import StoreError, UserError
from topk_platform.records import Ledger, find
from topk_platform.records.storage.checked_json import with_checksum


@pytest.fixture
def key(tmp_path: Path, study: Study) -> str:
    """The key of a trial in the study ``s``, in a store with a folder of something else."""
    ended = record(study)
    filled(tmp_path, study, ended)
    (tmp_path / "mlflow-artifacts").mkdir()
    (tmp_path / "mlflow-artifacts" / "file").touch()
    return ended.trial.key


def test_a_trial_has_its_row_and_its_epochs(tmp_path: Path, key: str) -> None:
    result = find(key[:8], tmp_path)
    assert (result.row["key"], len(result.epochs)) == (key, 2)


@pytest.mark.parametrize("typed", ["0", "ffffffff"])
def test_a_key_of_no_trial_is_refused(typed: str, tmp_path: Path, key: str) -> None:
    assert not key.startswith(typed)
    with pytest.raises(UserError, match=f"key '{typed}'"):
        find(typed, tmp_path)


def test_a_study_of_another_schema_may_hold_the_trial(tmp_path: Path, key: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ledger.json").write_bytes(with_checksum({"study": "a", "schema_version": 99}))
    assert find(key, tmp_path).row["key"] == key
    with pytest.raises(StoreError, match="schema version 99"):
        find("ffffffff", tmp_path)


def test_a_store_that_fails_does_not_count_as_one_without_the_trial(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "rows", Mock(side_effect=StoreError("Input/output error")))
    with pytest.raises(StoreError, match="Input/output error"):
        find(key, tmp_path)
