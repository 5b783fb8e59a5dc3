"""Stores that earlier programs wrote are read by this one, and go on: one file for each version of the schema.

`python tools/make_store.py` makes the file of the version at hand, before it is released; files stay for ever.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest

from topk_platform import Study, bundle, verify
from topk_platform.errors import StoreError
from topk_platform.evidence.adopting import candidates
from topk_platform.records import (
    SCHEMA_VERSION,
    Ledger,
    Store,
    find,
    last_counted,
    read_all_ranks,
    read_history,
    repair,
)
from topk_platform.records.table import schema
from topk_platform.results import build_table

STORES = sorted((Path(__file__).parent / "stores").glob("schema-*.zip"))


@pytest.fixture(params=STORES, ids=[path.stem for path in STORES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def study_of(store: Path) -> Study:
    return Study.from_json((store / "study.json").read_text())


def numbers(text: str) -> dict[tuple[str, ...], float]:
    return {tuple(line[:-1]): float(line[-1]) for line in csv.reader(io.StringIO(text))}


def test_there_is_a_store_of_each_version_and_they_are_small() -> None:
    wanted = {f"schema-{version}" for version in range(schema.OLDEST, SCHEMA_VERSION + 1)}
    assert {path.stem for path in STORES} >= wanted
    assert all(path.stat().st_size < 50_000 for path in STORES)


def test_an_earlier_programs_results_are_read(store: Path) -> None:
    """Its table comes out of it, with what counted then; each trial is found by its key, with epochs and ranks."""
    study = study_of(store)
    ledger = Ledger.open(Store.open(store), study.name)
    histories = read_history(ledger, study, ledger.identities(), curves=True)
    assert sorted(len(history.rows()) for history in histories.values()) == [1, 3]
    table = build_table(study, histories, ranks=lambda rows: read_all_ranks(ledger.store, rows))
    means = {(*key,): cell.value.mean for key, cell in table.cells.items() if cell.value is not None}
    assert means == pytest.approx(numbers((store / "table.csv").read_text()))
    for history in histories.values():
        for row in history.rows():
            result = find(row["key"], store)
            assert result.trial.arm_id == row["arm_id"] and len(result.epochs) == result.row["epochs"] == 2
        assert all(history.curves[row["key"]] for row in history.search.values())
    confirmed = [row for history in histories.values() for row in history.confirm.values()]
    assert len(read_all_ranks(ledger.store, confirmed)) == 2


def test_its_trials_can_be_adopted_bundled_and_repaired(store: Path) -> None:
    study = study_of(store)
    ledger = Ledger.open(Store.open(store), study.name)
    here = last_counted(
        ledger, study, {i: result.dataset_fingerprint for i, result in ledger.identities().items()}
    )
    assert {study.arm_id(arm) for arm in study.arms} == here.keys()
    others = {arm_id: type(result)("another", result.dataset_fingerprint) for arm_id, result in here.items()}
    assert candidates(ledger, others).trials == 4
    (store / "file").write_bytes(bundle(study, store=store).to_bytes())
    assert verify(store / "file").holds
    repair(study.name, store=store)
    assert len(ledger.rows()) == 4


def test_this_program_writes_on_in_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on an earlier program, to which the version says nothing, refuses it."""
    study = study_of(store)
    newer = SCHEMA_VERSION + 1
    for module in ("ledger.ledger", "table.mark", "table.schema"):
        monkeypatch.setattr(f"topk_platform.records.{module}.SCHEMA_VERSION", newer)
    ledger = Ledger.open(Store.open(store), study.name)
    key = ledger.keys()[0]
    with ledger.writing(study) as writer:
        writer.remove([key])
    assert len(ledger.rows()) == 3
    assert json.loads((store / study.name / "ledger.json").read_text())["schema_version"] == newer
    monkeypatch.undo()
    with pytest.raises(StoreError, match="a newer program has written it, so upgrade topk-studies here"):
        Ledger.open(Store.open(store), study.name)
