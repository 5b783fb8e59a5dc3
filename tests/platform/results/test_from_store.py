"""What readers take from a store: the last run's budget and data, what it counted, and accuracies that ranks answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_studies import searched, small_study
from trained_studies import train_study

from topk_platform import LongTail, Loss, Recipe, Regime, Study, UserError, table
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.recorded import note_plan
from topk_platform.records.storage.store import Store
from topk_platform.reports.page import markdown_report
from topk_platform.results.from_store import read
from topk_platform.specs import Trial
from topk_platform.specs.metric_names import accuracy_names
from topk_platform.testing import fake_run
from topk_platform.versions import versions_of

TAIL = Regime("tail", "digits", (LongTail(20),))


def a_study(*losses: str, epochs: int = 2, **fields: Any) -> Study:
    of_losses = losses or (searched(), "topk_hinge")
    return small_study(*of_losses, regimes=[TAIL], recipe=Recipe(epochs), trials=2, seeds=2, **fields)


def score(trial: Trial) -> float:
    return 0.5 + 0.01 * (trial.number % 7) + 0.001 * (trial.seed % 5)


@pytest.mark.parametrize(
    "asked", [{"searches": 3}, {"trials": 1, "seeds": 4}, {"searches": 2, "trials": 2, "seeds": 6}]
)
def test_readers_take_the_budget_of_the_last_run(tmp_path: Path, asked: dict[str, int]) -> None:
    other = a_study().with_budget(**asked)
    fake_run(other, tmp_path, score)
    shown = table(a_study(), store=tmp_path)
    assert (shown.left, shown.study.searches, shown.study.changed) == (0, other.searches, other.changed)
    assert shown == table(other, store=tmp_path)
    assert table(a_study().with_budget(seeds=other.searches), store=tmp_path).study.seeds == other.searches
    assert "searched once" not in markdown_report(a_study(), store=tmp_path) or other.searches == 1
    fake_run(a_study(), tmp_path, score)
    assert table(a_study(), store=tmp_path).study == a_study().with_budget()


def test_a_budget_that_no_longer_fits_the_definition_is_left(tmp_path: Path) -> None:
    fake_run(a_study().with_budget(trials=1), tmp_path, score)
    thrice = replace(a_study(), arms=tuple(arm.searched(3) for arm in a_study().arms), trials=6, seeds=6)
    assert table(thrice, store=tmp_path).study.trials == 6


def test_a_number_that_does_not_go_with_those_of_the_last_run_is_refused(tmp_path: Path) -> None:
    fake_run(a_study().with_budget(searches=3), tmp_path, score)
    with pytest.raises(UserError, match="seeds must be a multiple of the 3 searches"):
        table(a_study().with_budget(seeds=4), store=tmp_path)


def test_the_folder_of_datasets_is_that_of_the_last_run(tmp_path: Path) -> None:
    ledger = fake_run(a_study(), tmp_path / "runs", score)
    note_plan(ledger.store, a_study(), tmp_path / "photos")
    assert read(a_study(), tmp_path / "runs").data_folder() is None, "there is no such folder here"
    (tmp_path / "photos").mkdir()
    held = read(a_study(), tmp_path / "runs")
    assert (held.data_folder(), held.data_folder("x")) == (str(tmp_path / "photos"), "x")


@pytest.mark.parametrize("edited", [a_study(epochs=3), a_study("ldam"), None])
def test_after_a_change_that_counts_readers_show_what_the_last_run_counted(
    tmp_path: Path, edited: Study | None
) -> None:
    """Of the definition, or of the code."""
    old = {i: Identity(f"{code}, old 1", "fake") for i, code in versions_of(a_study()).items()}
    fake_run(a_study(), tmp_path / "s", score, identities=None if edited else old)
    shown = table(edited or a_study(), store=tmp_path / "s")
    fake_run(a_study(), tmp_path / "same", score)
    before = table(a_study(), store=tmp_path / "same")
    assert shown.cells == before.cells and shown.changed and not before.changed
    assert "`topk plan s` says what has changed" in shown.to_markdown().replace(f" --store {tmp_path}/s", "")
    assert "The study or the code has changed" not in before.to_markdown()
    assert "The study or the code has changed" in markdown_report(edited or a_study(), store=tmp_path / "s")


def test_once_a_changed_study_runs_its_own_results_are_shown(tmp_path: Path) -> None:
    fake_run(a_study(), tmp_path, score)
    fake_run(a_study(epochs=3), tmp_path, score, stop_after=1)
    shown = table(a_study(epochs=3), store=tmp_path)
    assert not shown.changed and shown.left == a_study().size - 1


def test_another_k_trains_nothing_again_and_is_read_from_the_ranks(tmp_path: Path) -> None:
    """Plain, macro and by group of classes: the same numbers as if it had been asked for at first."""
    more = replace(a_study(topk=(1, 2, 3)), trials=1)  # later suggestions would differ with the K
    train_study(replace(a_study(), trials=1), tmp_path / "few")
    train_study(more, tmp_path / "all")
    keys = Ledger.open(Store.open(tmp_path / "few"), "s").keys()
    train_study(more, tmp_path / "few")
    assert Ledger.open(Store.open(tmp_path / "few"), "s").keys() == keys
    for study in (more, replace(more, show=("few_top2", "top2"))):
        ours, theirs = (table(study, store=tmp_path / name) for name in ("few", "all"))
        assert ours.left == 0 and ours.cells.keys() == theirs.cells.keys()
        for key, cell in ours.cells.items():
            value, other = cell.value, theirs.cells[key].value
            assert value is not None and other is not None
            assert value.mean == pytest.approx(other.mean, abs=1e-12)
    assert {metric for _, _, metric in ours.cells} == set(accuracy_names((1, 2, 3)))
    added = replace(more, arms=(*more.arms, replace(more.arms[0], loss=Loss("ldam"))), seeds=3)
    train_study(added, tmp_path / "few")
    assert len(Ledger.open(Store.open(tmp_path / "few"), "s").keys()) == len(keys) + 2 + 3
