"""Measures of the user's own: of ranks, asked after the fact, and of scores, kept with a confirmation's record."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow.parquet as pq
import pytest
from driven import run_in_process
from made_studies import small_study

from topk_platform import run, table
from topk_platform.errors import UserError
from topk_platform.own_measures import of_scores
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.per_image import read_ranks
from topk_platform.records.storage.store import Store
from topk_platform.specs import Trial, TrialRecord
from topk_platform.training import finish, run_trials

MEASURES = """
import numpy as np

def reciprocal(ranks):
    return 1 / (1 + ranks.greater)

def largest(ranks):
    return float(ranks.greater.max())

def cost(scores, labels, network):
    wrong = (scores.argmax(1) != labels).double().mean()
    return {"cost": -wrong, "images": len(labels), "layers": str(len(list(network.parameters())))}

def broken(scores):
    raise ValueError("no\\nsuch thing")

def infinite(labels):
    return np.inf

def of_columns(ranks):
    return np.zeros(3)

def of_others(logits):
    return 0.0
"""
PLAIN = small_study("cross_entropy", "topk_hinge", name="own", models=["linear"], seeds=3)
STUDY = replace(PLAIN, show=("top3", "measures_here:reciprocal", "measures_here:cost"))
CELL = "topk_hinge", "r"


@pytest.fixture(autouse=True)
def measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A folder with a module of measures, and neither Ray nor MLflow."""

    def train(trials: Sequence[Trial], store: Store) -> list[TrialRecord]:
        keeper = StoreKeeper(store, 1e9, ())
        return finish(run_trials(trials, keeper, measures=of_scores(asked)))

    asked = ("measures_here:cost", "measures_here:broken", "measures_here:infinite")
    run_in_process(monkeypatch, train)
    (tmp_path / "measures_here.py").write_text(MEASURES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "measures_here", raising=False)
    return importlib.import_module("measures_here")


def test_own_measures_are_in_the_table_and_in_the_rows_and_change_no_identity() -> None:
    assert [*map(STUDY.arm_id, STUDY.arms)] == [*map(PLAIN.arm_id, PLAIN.arms)]
    shown = run(STUDY).table
    of_ranks, of_scores_ = (shown.cells[(*CELL, f"measures_here:{name}")] for name in ("reciprocal", "cost"))
    accuracy = shown.cells[(*CELL, "top1")]
    assert of_ranks.value is not None and of_scores_.value is not None and accuracy.value is not None
    ledger = Ledger.open(Store.open("runs"), "own")
    rows = [row for row in ledger.rows() if row["loss"] == "topk_hinge"]
    kept = [read_ranks(ledger.store, row) for row in rows]
    assert of_ranks.value.mean == pytest.approx(np.mean([1 / (1 + ranks.greater) for ranks in kept if ranks]))
    assert of_ranks.value.covers == accuracy.value.covers == "seeds and images"
    assert of_ranks.difference is not None and of_ranks.difference.covers == "seeds and images"
    assert of_scores_.value.mean == pytest.approx(accuracy.value.mean - 1)
    assert of_scores_.value.covers == "seeds"
    assert "reciprocal, units" in str(shown) and "not measured" not in str(shown)
    trials = pq.read_table("runs/own/tables/trials.parquet").to_pylist()
    assert {(row["own.images"], row["own.layers"]) for row in trials} == {(360, "1")}
    assert pq.read_schema("runs/own/tables/seeds.parquet").names[-1] == "measures_here:cost"


def test_ranks_answer_after_the_fact_and_scores_are_not_those_of_other_code(measures: ModuleType) -> None:
    run(PLAIN)
    assert run(replace(PLAIN, measures=(measures.reciprocal, measures.largest))).ran == 0
    single = table(replace(PLAIN, show=("measures_here:largest",))).cells[(*CELL, "measures_here:largest")]
    assert single.value is not None and single.value.covers == "seeds"
    file = Path(str(measures.__file__))
    file.write_text(file.read_text().replace("-wrong", "-2 * wrong"))
    again = "`topk run own --measures` trains these again"
    text = " ".join(str(table(STUDY)).split())
    assert "not measured in 6 of 6" in text and again in text
    assert run(STUDY).ran == 0
    assert run(STUDY, measures=True).ran == 6
    assert "not measured" not in str(table(STUDY))


@pytest.mark.parametrize(
    ("name", "why"), [("broken", "ValueError: no"), ("infinite", "infinite must be a finite number")]
)
def test_a_measure_that_fails_leaves_the_result_and_says_why(name: str, why: str) -> None:
    shown = run(replace(PLAIN, measures=(f"measures_here:{name}",))).table
    assert shown.confirmation_ends.completed == 6
    assert f"measures_here:{name} is not measured in 6 of 6 confirmations: " in str(shown) and why in str(
        shown
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("of_others", "must be a function of ranks, or of some of scores, labels, network, got"),
        ("missing", "has no"),
        ("of_columns", "must return a number, or one for each of 360 test images"),
    ],
)
def test_what_is_no_measure_is_refused(name: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        run(replace(PLAIN, measures=(f"measures_here:{name}",)))
    with pytest.raises(UserError, match="cannot select, because it is measured on the test split"):
        replace(PLAIN, measures=("m:f",), arms=[replace(PLAIN.arms[0], metric="m:f")])
