"""The error of a store that holds nothing of a study says what it holds instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from topk_platform.errors import StoreError
from topk_platform.records import Ledger, Store, nothing_of
from topk_platform.specs import Study
from topk_studies import digits


def _written(store: Path, study: Study) -> None:
    with Ledger.open(Store.open(store), study.name).writing(study):
        pass


def test_what_a_store_holds_instead_of_a_study_is_named(tmp_path: Path) -> None:
    said = f"store '{tmp_path}' holds nothing of study 'digits'"
    assert str(nothing_of(tmp_path / "typo", "digits")).endswith("study 'digits': there is no such folder")
    assert str(nothing_of(tmp_path, "digits")) == said
    _written(tmp_path, replace(digits(), name="birds"))
    assert str(nothing_of(tmp_path, "digits")) == f"{said}: it holds birds"
    _written(tmp_path, replace(digits(), name="digits-smoke"))
    assert str(nothing_of(tmp_path, "digits")) == (
        f"{said}, but of its small version 'digits-smoke': add --smoke to see it"
    )


def test_the_folder_of_a_study_is_no_store(tmp_path: Path) -> None:
    _written(tmp_path, digits())
    with pytest.raises(StoreError, match="is the folder of one study: give --store the folder that holds it"):
        Ledger.open(Store.open(tmp_path / "digits"), "digits")
