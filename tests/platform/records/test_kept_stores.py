"""A store that was written by an earlier day's program is read: the kept one of the present schema.

Where this fails and no reader is at fault, as after a spec lost a field, stores of before no longer count: raise
``SCHEMA_VERSION``, so that they are refused with a sentence, and run ``tests/harness/kept_store.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import kept_store
import pytest
from in_process import topk

from topk_platform import Study, load_model
from topk_platform.errors import StoreError
from topk_platform.records import history
from topk_platform.records.files import damaged_artifacts
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.checked_json import SCHEMA_VERSION
from topk_platform.records.storage.store import Store

STUDY = "kept_store:study"
TOP3 = {"cross_entropy": 0.981944, "smooth_topk_svm": 0.794444}
MOST_BYTES = 60_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kept store. Rows of the versions in it count, whichever component has been raised since."""
    folder = kept_store.unpacked(tmp_path / "store")
    study = kept_store.study()
    noted = Ledger.open(Store.open(folder), study.name).identities()

    def versions(study: Study) -> dict[str, str]:
        return {study.arm_id(arm): noted[study.arm_id(arm)].code_version for arm in study.arms}

    monkeypatch.setattr(history, "versions_of", versions)
    return str(folder)


def test_every_kept_store_is_small_and_those_of_other_schemas_are_refused(tmp_path: Path) -> None:
    kept = {int(path.name.removeprefix("schema_").split(".")[0]): path for path in kept_store.KEPT.iterdir()}
    assert max(kept) == SCHEMA_VERSION and sum(path.stat().st_size for path in kept.values()) < MOST_BYTES
    for schema in kept.keys() - {SCHEMA_VERSION}:
        folder = kept_store.unpacked(tmp_path / str(schema), schema)
        with pytest.raises(StoreError, match=f"schema version {schema}"):
            Ledger.open(Store.open(folder), kept_store.study().name)


def test_the_table_is_that_of_the_day_it_was_made(store: str) -> None:
    code, printed, _ = topk("table", STUDY, "--store", store, "--metric", "top3", "--json")
    assert code == 0
    means = {row["loss"]: (row["mean"], row["n"]) for row in json.loads(printed)}
    assert means == {loss: (pytest.approx(mean, abs=1e-6), 2) for loss, mean in TOP3.items()}
    for more in (["--by", "class"], ["--format", "md"]):
        assert topk("table", STUDY, "--store", store, *more)[0] == 0


def test_the_status_is_that_of_a_finished_study(store: str) -> None:
    code, printed, _ = topk("status", "--store", store, "--json")
    (shown,) = json.loads(printed)
    names = ("study", "recorded", "not_counted", "left")
    assert (code, [shown[name] for name in names]) == (0, ["kept", 8, {}, 0])
    assert [(arm["done"], arm["total"]) for arm in shown["arms"]] == [(4, 4)] * 2


def test_its_report_and_its_exports_are_made(store: str, tmp_path: Path) -> None:
    report, out = tmp_path / "report.md", tmp_path / "model"
    assert topk("report", STUDY, "--store", store, "--format", "md", "--to", str(report))[0] == 0
    assert "98.2" in report.read_text() and "79.4" in report.read_text()
    rows = tmp_path / "rows.csv"
    assert topk("export", STUDY, "--store", store, "--format", "csv", "--to", str(rows))[0] == 0
    assert rows.read_text().count("\n") > 8
    arm = kept_store.study().arms[1].name
    assert topk("export", STUDY, "--store", store, "--arm", arm, "--to", str(out))[0] == 0
    assert load_model(out).config.inputs.classes == 10


def test_all_its_files_are_sound(store: str) -> None:
    ledger = Ledger.open(Store.open(store), kept_store.study().name)
    rows = ledger.rows("phase = 'confirm'")
    assert len(rows) == 4 and not list(damaged_artifacts(ledger.store, rows))
