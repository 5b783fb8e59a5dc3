"""Two parts of a study, run into stores of their own, are one study after a merge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from in_process import topk
from trained_studies import train_study

from topk_platform import UserError, table
from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.merging import merge
from topk_platform.records.recorded import Recorded
from topk_platform.records.states import read_state
from topk_platform.records.storage.store import Store
from topk_platform.reports.table_data import to_files
from topk_platform.testing import fake_run
from topk_platform.versions import versions_of
from topk_studies import digits

SMALL = digits().smoke().only(["*/mlp/cross_entropy", "*/mlp/smooth_topk_svm"])


def files_of(store: Path) -> dict[str, bytes]:
    folder = store / SMALL.name
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for kind in ("ranks", "guesses", "models")
        for path in sorted((folder / kind).rglob("*.*"))
    }


@pytest.mark.slow
def test_two_halves_of_digits_give_the_table_of_the_whole_bit_for_bit(tmp_path: Path) -> None:
    halves = SMALL.only("balanced/*"), SMALL.only(["noise*", "long*"])
    for study, name in ((SMALL, "whole"), (halves[0], "a"), (halves[1], "b")):
        train_study(study, tmp_path / name)
    code, out, _ = topk("merge", str(tmp_path / "b"), "--store", str(tmp_path / "a"))
    assert (code, out) == (0, f"{SMALL.name}: {halves[1].size} trials copied from {tmp_path}/b\n")
    whole, ours = (Ledger.open(Store.open(tmp_path / name), SMALL.name) for name in ("whole", "a"))
    assert ours.keys() == whole.keys() and len(ours.read("epochs")) == len(whole.read("epochs"))
    assert files_of(tmp_path / "a") == files_of(tmp_path / "whole")
    theirs, merged = (table(SMALL, store=tmp_path / name) for name in ("whole", "a"))
    assert to_files(merged)["table.parquet"] == to_files(theirs)["table.parquet"]
    assert merged.left == read_state(Recorded.read(ours)).whole.left == 0
    again = topk("merge", str(tmp_path / "b"), "--store", str(tmp_path / "a"))[1]
    assert again.startswith(f"{SMALL.name}: 0 trials")


def test_a_merge_into_an_empty_store_is_a_copy(tmp_path: Path) -> None:
    fake_run(SMALL, tmp_path / "a", lambda trial: 0.5, stop_after=20)
    assert merge(tmp_path / "a", tmp_path / "new") == {SMALL.name: 20}
    assert table(SMALL, store=tmp_path / "new") == table(SMALL, store=tmp_path / "a")


@pytest.mark.parametrize(
    "changed",
    [{"code_version": "old"}, {"dataset_fingerprint": "other"}, {"environment": {"machine": "NVIDIA L4"}}],
)
def test_results_of_other_code_data_or_machines_are_not_merged(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    counted = {arm_id: Identity(code, "fake") for arm_id, code in versions_of(SMALL).items()}
    other = {arm_id: replace(identity, **changed) for arm_id, identity in counted.items()}
    fake_run(SMALL, tmp_path / "a", lambda trial: 0.5, stop_after=3)
    fake_run(SMALL, tmp_path / "b", lambda trial: 0.5, stop_after=6, identities=other)
    with pytest.raises(UserError, match="other code, data or machines"):
        merge(tmp_path / "b", tmp_path / "a")
    assert len(Ledger.open(Store.open(tmp_path / "a"), SMALL.name).keys()) == 3


def test_a_store_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no study"):
        merge(tmp_path / "none", tmp_path / "a")
