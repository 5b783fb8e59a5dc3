"""Findings: a study's table in a file, which says what the store says."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from in_process import offer, topk
from made_studies import small_study
from shipped import shipped
from trained_studies import train_study

import topk_studies
from topk_platform import Claim, Contrast, Float, Loss, Protocol, Recipe, Regime, Study, UserError
from topk_platform import table as table_of
from topk_platform.protocol import Tally
from topk_platform.reports import plots
from topk_platform.reports.findings_export import findings, situation_of
from topk_platform.reports.plots import NothingToPlotError
from topk_platform.reports.result_tables import to_latex, to_markdown
from topk_platform.reports.table_data import to_rows
from topk_platform.results import Cell, Table, estimate
from topk_platform.results.cells import marked
from topk_platform.results.decisions import decide
from topk_platform.results.findings import Findings
from topk_platform.results.findings_schema import Situation
from topk_platform.results.table import row_and_column
from topk_platform.specs import LabelNoise, LongTail, PerClass
from topk_studies import evidence

SHIPPED = Path(topk_studies.__file__).parent / "findings"
SHIPPED_BYTES = 200_000  # of a study: a hundred times less than its ledger


def a_study() -> Study:
    regimes = [Regime("few", "digits", (PerClass(20),)), Regime("noise", "digits", (LabelNoise(0.5),))]
    fair, bad = {"learning_rate": Float(0.05, 0.1)}, {"learning_rate": Float(1e-7, 1e-6)}
    losses = [
        Loss("cross_entropy", fair, {"learning_rate": 0.1}),
        Loss("ldam", bad, {"learning_rate": 1e-6}, label="badly_set"),
    ]
    asked = {"protocol": Protocol(searches=3), "trials": 3, "seeds": 3, "claims": claims()}
    return small_study(*losses, name="known", regimes=regimes, models=["linear"], recipe=Recipe(3), **asked)


def claims() -> tuple[Claim, ...]:
    few, noise = (
        Contrast.between(f"{regime}/linear/cross_entropy", f"{regime}/linear/badly_set", "top3")
        for regime in ("few", "noise")
    )
    other = Contrast.between("few/linear/badly_set", "few/linear/cross_entropy", "top1")
    asked = {"ahead": few, "behind": other, "more-ahead": few.minus(noise)}
    made = [Claim(name=n, text="It is so.", source="me", contrasts=[c]) for n, c in asked.items()]
    mean = Contrast({"few/linear/cross_entropy": 1.0}, "top3")
    return *made, Claim(name="high", text="It is so.", source="me", contrasts=[mean], bound=20)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("findings")
    train_study(a_study(), folder)
    return folder


@pytest.fixture(scope="module")
def file(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "known.json.gz"
    path.write_bytes(findings(a_study(), store=store, note="made up").to_bytes())
    return path


def test_a_file_says_what_the_store_says(store: Path, file: Path) -> None:
    result, table = Findings.read(file), table_of(a_study(), store=store)
    assert result.study == a_study() and result.to_bytes() == file.read_bytes()
    unstored = dataclasses.replace(table, stored=False)
    assert to_markdown(result.table) == to_markdown(unstored)
    assert to_latex(result.table, ["top3"]) == to_latex(unstored, ["top3"])
    for key, rows in table.confirmations.items():
        kept = result.table.confirmations[key]
        assert {s: row["key"] for s, row in kept.items()} == {s: row["key"] for s, row in rows.items()}
    assert (result.made["trials"], result.made["note"]) == (24, "made up")
    assert set(result.made["datasets"]) == {"few", "noise"}


def test_a_metric_that_a_file_does_not_have_is_refused(file: Path) -> None:
    table = Findings.read(file).table
    for write in (to_markdown, to_latex, to_rows):
        with pytest.raises(UserError, match=r"--metric must be one of \['top1', 'top3'\], got 'macro_top1'"):
            write(table, ["macro_top1"])


def test_a_file_decides_claims_as_the_store_does(store: Path, file: Path) -> None:
    by_store = decide(a_study(), store=store)
    assert [decision.verdict for decision in by_store] == ["confirmed", "refuted", "undecided", "confirmed"]
    assert Findings.read(file).decisions() == by_store


def test_marks_are_corrected_for_arms_that_select_by_a_metric_that_is_not_shown(tmp_path: Path) -> None:
    losses = "cross_entropy", "ldam"
    arms = [
        *small_study(*losses, regimes="a").arms,
        *small_study(*losses, regimes="b", metric="macro_top3").arms,
    ]
    study, cells = Study("two", arms, topk=(1, 3), show=("top3",)), {}
    for arm in arms:
        key, ahead = row_and_column(study, "regime", arm), None
        if arm.loss.label != "cross_entropy":
            ahead = estimate([0.01, 0.02, 0.03, 0.05])
        for metric in ("top3", "macro_top3"):
            cell = Cell(estimate([0.5, 0.6]), ahead, metric=metric, primary=metric == arm.metric)
            cells[(*key, metric)] = cell, Tally()
    table = Table(study, ("cross_entropy", "ldam"), ("a", "b"), marked(cells), {})
    origin = {"trials": 0, "code_versions": (), "environments": (), "datasets": {}, "package": "", "note": ""}
    (tmp_path / "two.gz").write_bytes(Findings(table, {}, origin, ()).to_bytes())
    kept = Findings.read(tmp_path / "two.gz").table
    assert kept.family_size == table.family_size == 2
    key = ("ldam", "a", "top3")
    assert kept.cells[key].p_holm == table.cells[key].p_holm


def test_plots_that_want_a_table_alone_are_drawn(file: Path) -> None:
    data = plots.plotted(Findings.read(file).table)
    for kind in ("differences", "accuracy"):
        assert plots.written(plots.draw(kind, data), "svg")
    for kind in ("topk", "training", "search"):
        with pytest.raises(NothingToPlotError):
            plots.draw(kind, data)
    with pytest.raises(UserError, match="--metric must be one of"):
        plots.plotted(Findings.read(file).table, metric="top7")


def test_what_is_no_file_of_findings_is_refused(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "x.json.gz"
    for content in (b"nothing", gzip.compress(b"[]"), gzip.compress(b'{"format": 2}')):
        other.write_bytes(content)
        with pytest.raises(UserError, match=r"x\.json\.gz' must be a file of"):
            Findings.read(other)
    data = json.loads(gzip.decompress(file.read_bytes()))
    other.write_bytes(gzip.compress(json.dumps({**data, "cells": [{}]}).encode()))
    with pytest.raises(UserError, match="must be a file of"):
        Findings.read(other)
    other.write_bytes(gzip.compress(json.dumps({**data, "contrasts": data["contrasts"][1:]}).encode()))
    with pytest.raises(UserError, match="contrasts must be those of the study's claims"):
        Findings.read(other)


def test_without_confirmations_there_is_nothing_to_export(store: Path) -> None:
    with pytest.raises(UserError, match="so there are no findings yet"):
        findings(small_study("focal", name="known"), store=store)


def test_commands_write_and_read_findings(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, "findings_lab", study=a_study())
    file = str(tmp_path / "known.json.gz")
    options = ("--format", "findings", "--to", file, "--store", str(store))
    assert topk("export", "findings_lab:study", *options)[0] == 0
    table = topk("table", file)[1]
    assert "known: 24 recorded trials" in table
    assert "badly" in table and "`topk " not in table  # the reader has no store
    assert json.loads(topk("table", file, "--json")[1])
    claims = json.loads(topk("table", file, "--claims", "--json")[1])
    assert [row["verdict"] for row in claims] == [
        decision.verdict for decision in decide(a_study(), store=store)
    ]
    picture = tmp_path / "map.svg"
    assert topk("plot", file, "differences", "--to", str(picture))[0] == 0
    assert picture.read_bytes().startswith(b"<?xml")


def test_findings_take_the_place_of_a_store_that_holds_nothing(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a study without a definition are its table; those of another one are, until the store has results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(topk_studies, "findings_files", lambda: {"archived": file, "digits": file})
    rows = json.loads(topk("table", "archived", "--json")[1])
    assert rows == json.loads(topk("table", str(file), "--json")[1])
    code, out, err = topk("table", "digits", "--json")
    assert (code, json.loads(out), err.count("\n")) == (0, rows, 1)
    assert "store 'runs' holds nothing of study digits" in err
    assert json.loads(topk("list", "--json")[1])["findings_only"] == ["archived"]
    for wrong in ("run archived", "table archived --seeds 2", "table digits --seeds 2", "plot digits search"):
        assert topk(*wrong.split())[0] == 2


def test_shipped_findings_are_small() -> None:
    assert all(file.stat().st_size < SHIPPED_BYTES for file in SHIPPED.iterdir())
    assert all(result.table.cells for result in shipped())


def test_shipped_findings_are_read_by_their_studys_name() -> None:
    """A file has its study's name; a name without a file is refused before any file is read."""
    names = [result.study.name for result in shipped()]
    assert names == sorted(file.name.removesuffix(".json.gz") for file in SHIPPED.iterdir())
    (first,) = evidence(names[0])
    assert first.to_bytes() == shipped()[0].to_bytes()
    with pytest.raises(
        UserError, match="unknown study whose findings are shipped 'letterz': did you mean 'letters'"
    ):
        evidence(names[0], "letterz")


def test_a_regime_is_what_its_conditions_leave_of_its_data() -> None:
    result = situation_of(Regime("few", "digits", (PerClass(20), LabelNoise(0.5), LabelNoise(0.2))), 3)
    assert result == Situation(10, 200, 1.0, 0.6, 3)
    tail = situation_of(Regime("tail", "digits", (LongTail(20),)), 3)
    assert 19 <= tail.imbalance <= 21 and tail.images < 700


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"classes": 1}, "classes"), ({"noise": 1.5}, "noise"), ({"imbalance": 0.5}, "imbalance"),
     ({"k": 100}, "k"), ({"images": 50}, "images")],
)  # fmt: skip
def test_what_cannot_be_is_refused(changes: Mapping[str, Any], name: str) -> None:
    with pytest.raises(UserError, match=rf"\b{name} must be "):
        Situation(**{"classes": 100, "images": 5000, "imbalance": 1.0, "noise": 0.0, "k": 5, **changes})
