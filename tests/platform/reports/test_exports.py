"""Trials for other tools: what Optuna and a reader of CSV find is what the ledger holds."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import optuna
import pytest
from in_process import offer, topk
from made_records import filled, make_record
from made_studies import FIRST, RATE, searched, small_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from topk_platform import Float, Loss, Recipe, Study
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.reports.exports import trials_csv
from topk_platform.reports.optuna_journal import optuna_journal
from topk_platform.specs import TrialRecord
from topk_platform.versions import versions_of

ENDS = ("completed", "pruned", "diverged", "completed")


@pytest.fixture(scope="module")
def study() -> Study:
    svm = Loss("smooth_topk_svm", {"tau": Float(0.1, 10)} | RATE, {"tau": 1.0} | FIRST)
    losses = (searched(), svm, "topk_hinge")
    return small_study(*losses, models=["linear"], recipe=Recipe(2), trials=4, seeds=2)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, study: Study) -> Path:
    folder = tmp_path_factory.mktemp("tidy")
    codes = versions_of(study)
    ledger = filled(folder, study, *records(study, codes))
    with ledger.writing(study):
        ledger.identify({i: Identity(code, "f") for i, code in codes.items()})
    return folder


def records(study: Study, codes: Mapping[str, str]) -> Iterator[TrialRecord]:
    """All trials of the arms, better with every number and seed."""
    for index, arm in enumerate(study.arms):
        ends = [(number, 0, status) for number, status in enumerate(ENDS) if arm.is_searched]
        ends += [(3 if arm.is_searched else 0, seed, "completed") for seed in (1, 2)]
        for number, seed, status in ends:
            given = {
                "values": dict.fromkeys(arm.loss.space, 0.1 * (number + 1)),
                "code": codes[study.arm_id(arm)],
            }
            top3 = 0.25 + number / 16 + seed / 64
            yield make_record(study, number, arm=index, seed=seed, status=status, top3=top3, **given)


def test_optuna_opens_every_arm_as_a_study(study: Study, store: Path, tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(optuna_journal(study, store=store))
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "j")))
    names = optuna.get_all_study_names(storage)
    assert sorted(names) == sorted(arm.name for arm in study.arms if arm.is_searched)
    rows = {row["key"]: row for row in Ledger.open(Store.open(store), "s").rows("phase = 'search'")}
    seen = 0
    for name in names:
        result = optuna.load_study(study_name=name, storage=storage)
        assert result.metric_names == ["validation.top3"]
        for trial in result.trials:
            row = rows[trial.user_attrs["topk.key"]]
            seen += 1
            assert row["arm"] == name and trial.number == row["number"] == trial.user_attrs["topk.number"]
            chosen = json.loads(row["values"])
            assert "learning_rate" in trial.params and trial.params.items() <= chosen.items()
            assert trial.intermediate_values == dict.fromkeys((1, 2), row["validation.top3"])
            if row["status"] == "completed":
                assert trial.value == row["validation.top3"]
        states = Counter(trial.state for trial in result.trials)
        assert states == {TrialState.COMPLETE: 2, TrialState.PRUNED: 1, TrialState.FAIL: 1}
        assert result.best_trial.number == 3
    assert seen == len(rows)


def test_the_csv_has_every_number_of_the_ledger_once(study: Study, store: Path) -> None:
    lines, codebook = (list(csv.DictReader(io.StringIO(text))) for text in trials_csv(study, store=store))
    assert [line["column"] for line in codebook] == list(lines[0])
    assert all(line["meaning"] for line in codebook)
    rows = Ledger.open(Store.open(store), "s").rows()
    numbers = [(row, split, m) for row in rows for split in ("validation", "test") for m in study.metrics]
    expected = {
        (row["key"], split, m): row[f"{split}.{m}"]
        for row, split, m in numbers
        if row["seed"] or split != "test"
    }
    assert {(line["key"], line["split"], line["metric"]): float(line["value"]) for line in lines} == expected
    assert len(lines) == len(expected)
    by_key = {row["key"]: json.loads(row["values"]) for row in rows}
    for line in lines:
        tau = by_key[line["key"]].get("tau")
        assert line["param.tau"] == ("" if tau is None else str(tau))


@pytest.mark.parametrize("output", ["csv", "optuna"])
def test_the_command_writes_them_and_reports_what_cannot_be_written(
    study: Study, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    offer(monkeypatch, "exports_lab", study=study)
    for name, code in {"x.csv": 0, "none/x.csv": 2, f"{'x' * 252}.csv": 2}.items():
        to = ("--format", output, "--to", str(tmp_path / name), "--store", str(store))
        assert topk("export", "exports_lab:study", *to)[0] == code
    assert (tmp_path / "x.csv").stat().st_size
    assert (tmp_path / "x.codebook.csv").exists() == (output == "csv")
