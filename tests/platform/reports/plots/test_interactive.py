"""The interactive plots of searches: every completed trial is in the file, and the file needs nothing else."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, UserError, grid
from topk_platform.records import Ledger
from topk_platform.reports.plots import interactive
from topk_platform.reports.plots.interactive import interactive_search
from topk_platform.specs import Protocol, Trial
from topk_platform.testing import fake_run

RATE = Float(0.01, 1, log=True)


def a_study() -> Study:
    losses = [
        Loss("cross_entropy", {"learning_rate": RATE}, {"learning_rate": 0.1}),
        Loss(
            "smooth_topk_svm",
            {"learning_rate": RATE, "tau": Float(0.1, 10, log=True)},
            {"learning_rate": 0.1, "tau": 1.0},
        ),
    ]
    arms = grid([Regime("r", "digits")], [Model("linear")], losses, k=2, recipe=Recipe(1))
    return Study("s", arms, topk=(1, 2), trials=12, seeds=1)


def score(trial: Trial) -> float:
    return 0.9 - (float(trial.values["learning_rate"] or 0) - 0.3) ** 2


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ledger]:
    store = tmp_path_factory.mktemp("runs")
    return store, fake_run(a_study(), store, score)


@pytest.mark.skipif(find_spec("plotly") is None, reason="plotly is not installed")
def test_every_completed_trial_of_an_arm_is_a_line(ledger: tuple[Path, Ledger]) -> None:
    store, held = ledger
    page = interactive_search(a_study(), store=store)
    assert re.findall("<h2>(.*?)</h2>", page) == ["r/linear/cross_entropy", "r/linear/smooth_topk_svm"]
    texts = re.findall(r'Plotly\.newPlot\(\s*"plot-\d+",\s*(\[.*?\}\]),\s*\{"', page)
    first, second, ranked = map(json.loads, texts)
    assert len(ranked[0]["x"]) == 2 and ranked[0]["type"] == "bar"
    for figure, loss in ((first, "cross_entropy"), (second, "smooth_topk_svm")):
        rows = held.rows(f"loss = '{loss}' and phase = 'search' and status = 'completed'")
        assert results(figure) == sorted(f"{100 * row['validation.top2']:.3g}" for row in rows)


def results(figure: list[dict[str, Any]]) -> list[str]:
    """The validation results of the lines, as Optuna 5 draws them, a line each, or as Optuna 4 does, all in one."""
    if figure[0]["type"] == "parcoords":
        return sorted(f"{value:.3g}" for value in figure[0]["dimensions"][0]["values"])
    return sorted(line["customdata"][0][1] for line in figure if "customdata" in line)


@pytest.mark.skipif(find_spec("plotly") is None, reason="plotly is not installed")
def test_the_file_needs_nothing_else_and_is_the_same_again(ledger: tuple[Path, Ledger]) -> None:
    store, _ = ledger
    page = interactive_search(a_study(), store=store)
    assert not re.search(r"<script[^>]* src=|<link", page)
    assert page.count("plotly.js v") == 1 and interactive_search(a_study(), store=store) == page


@pytest.mark.skipif(find_spec("plotly") is None, reason="plotly is not installed")
def test_with_another_budget_an_arm_that_starts_from_another_has_that_budgets_trials(tmp_path: Path) -> None:
    """The number of trials is part of its identity."""
    first = a_study().arms[0]
    later = dataclasses.replace(
        first, regime=Regime("later", "digits"), protocol=Protocol(start_from="r/*/*")
    )
    study = Study("s", [first, later], topk=(1, 2), trials=12, seeds=1)
    fake_run(study.with_budget(trials=6), tmp_path, score)
    page = interactive_search(study, store=tmp_path, trials=6)
    assert re.findall("<h2>(.*?)</h2>", page) == [first.name, later.name]
    assert re.findall("<h2>(.*?)</h2>", interactive_search(study, store=tmp_path)) == [first.name]


def test_without_plotly_it_says_what_to_install(
    ledger: tuple[Path, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setattr(interactive, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"needs plotly: pip install 'topk-studies\[interactive\]'"):
        interactive_search(a_study(), store=ledger[0])
