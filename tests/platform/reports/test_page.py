"""Plots, tables in files and the page of a study, from a ledger that was written as a run writes it."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import offer, topk
from made_studies import searched, small_study

from topk_platform import Claim, Contrast, LabelNoise, Published, Recipe, Regime, Study
from topk_platform import plot as plot_of
from topk_platform import report as report_of
from topk_platform import table as table_of
from topk_platform.errors import UserError
from topk_platform.reports.answer import answer
from topk_platform.reports.catalogue import PLOTS
from topk_platform.reports.page import markdown_report
from topk_platform.reports.result_tables import result_tables
from topk_platform.reports.text_tables import markdown_parts
from topk_platform.results import from_store
from topk_platform.results.from_store import build_table
from topk_platform.results.table import Table
from topk_platform.running.counted import in_environment
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import EpochRecord, Trial, TrialRecord
from topk_platform.testing import fake_run
from topk_platform.training import environment

NAMES = ("cross_entropy", "smooth_topk_svm", "noised_imbalanced_topk_hinge")
GAINS = {"cross_entropy": 0.0, "smooth_topk_svm": 0.05, "noised_imbalanced_topk_hinge": -0.04}
IMAGES = 1000


def a_study() -> Study:
    noises = (0.0, 0.2, 0.4)
    regimes = [Regime(f"noise-{p}", "digits", (LabelNoise(p),)) for p in noises]
    ours, theirs = (f"noise-0.0/linear/{loss}" for loss in (NAMES[1], NAMES[0]))
    gap = Contrast.between(ours, theirs, "top3")
    claim = Claim(name="ahead", text="The SVM <b>leads</b>.", source="me", contrasts=[gap])
    printed = Published(regime="noise-0.2", loss=NAMES[1], metric="top3", value=77.7, source="A, Table 1")
    asked = {"trials": 10, "seeds": 5, "claims": [claim], "published": [printed]}
    how = {"regimes": regimes, "models": ["linear"], "recipe": Recipe(2)}
    return small_study(*map(searched, NAMES), name="page", **how, **asked)


def ranks(trial: Trial) -> torch.Tensor:
    """Images of which a share, by loss and seed, has rank 1, a part of the rest rank 3, and all others rank 6."""
    share = 0.5 + GAINS[trial.arm.loss.name] + (trial.seed % 3) / 200
    first, third = int(share * IMAGES), int((share + (1 - share) / 2) * IMAGES)
    greater = torch.full((IMAGES,), 5)
    greater[:third], greater[:first] = 2, 0
    label = torch.arange(IMAGES) % 10
    return torch.stack([greater, greater * 0, label, greater * 0])


def guesses(trial: Trial) -> torch.Tensor:
    """Three guesses for each image: the true class at its rank, the next ones around the circle elsewhere."""
    greater, _, label, _ = ranks(trial)
    result = (label[:, None] + torch.tensor([1, 2, 3])) % 10
    kept = greater < 3
    result[kept, greater[kept]] = label[kept]
    return result


def metrics(trial: Trial) -> Mapping[str, float]:
    if not trial.seed:
        return dict.fromkeys(("top1", "top3"), 0.5 + 0.001 * (trial.number * 7 % 10))
    greater = ranks(trial)[0]
    return {f"top{k}": float((greater < k).double().mean()) for k in (1, 3)}


def write(study: Study, store: Path, stop: int | None = None) -> None:
    """Write a record of every trial of a study, or of so many, as if they had run."""
    counted = in_environment(study, check_study(study), environment("cpu"))
    fake_run(study, store, ended, ranks=ranks, guesses=guesses, identities=counted, stop_after=stop)


def ended(trial: Trial) -> TrialRecord:
    result = metrics(trial)
    epochs = tuple(EpochRecord(e, 1.0, result, 0.1, 0.1) for e in (1, 2))
    return TrialRecord(
        trial, "completed", "", result, result if trial.seed else None, epochs, 1.0, 1000.0, 1001.0
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write(a_study(), folder)
    return folder


@pytest.fixture(scope="module")
def reported(store: Path) -> tuple[str, list[str]]:
    """The page, and the studies whose tables were built for it."""
    calls: list[str] = []

    def counted(study: Study, *arguments: Any, **options: Any) -> Table:
        calls.append(study.name)
        return build_table(study, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(from_store, "build_table", counted)
        return report_of(a_study(), store=store), calls


@pytest.fixture(scope="module")
def page(reported: tuple[str, list[str]]) -> str:
    return reported[0]


@pytest.fixture(scope="module")
def table(store: Path) -> Table:
    return table_of(a_study(), store=store)


class Reader(HTMLParser):
    """What a page's elements would fetch, which names they have and use, and which elements are left open."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.used: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            target = values.get(name, "")
            self.used += [target[1:]] if target.startswith("#") else []
            self.fetched += [target] if target and not target.startswith(("#", "data:")) else []
        self.ids += [values["id"]] if "id" in values else []
        if tag not in ("meta", "br", "wbr", "hr", "img", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()


def on_page(text: str) -> str:
    """A text as the page has it: escaped, with commands as code."""
    return re.sub("`(.*?)`", r"<code>\1</code>", html.escape(text, quote=False).replace("'", "&#39;"))


def test_the_page_is_whole_and_fetches_nothing(page: str) -> None:
    reader = Reader()
    reader.feed(page)
    assert reader.open == [] and reader.fetched == []
    assert set(reader.used) <= set(reader.ids)
    assert not re.search(r"@import|url\((?!#)|fetch\(|import\(|XMLHttpRequest", page)
    assert len(page.encode()) < 3_000_000


def test_the_numbers_of_the_page_are_the_tables(page: str, table: Table) -> None:
    for (_, _, metric), cell in table.cells.items():
        if cell.value is not None and metric in table.study.show:
            assert f"{100 * cell.value.mean:.1f} ± {100 * cell.value.half_width:.1f}" in page
    for rows in table.confirmations.values():
        for row in rows.values():
            line = page[page.index(row["key"]) :].split("</tr>", maxsplit=1)[0]
            assert all(f">{100 * row[f'test.{metric}']:.2f}</td>" in line for metric in table.study.show)
    assert "<td>77.7</td>" in page


def test_the_page_has_verdicts_and_all_plots_that_results_make(page: str) -> None:
    assert "ahead: undecided" in page and "&lt;b&gt;leads&lt;/b&gt;" in page
    drawn = set(re.findall('<figure id="plot-(.*?)">', page))
    assert drawn == set(PLOTS) - {"guesses"} and page.count("<svg") == len(drawn)
    assert re.findall("No plot of (.*?):", page) == ["guesses"]
    assert page.count('<details class="printed"><summary>noise-') == 3  # results by class


def test_a_report_in_markdown_says_what_the_page_says(store: Path, table: Table, page: str) -> None:
    text = markdown_report(a_study(), store=store)
    assert text.startswith("# page\n\n**Answer.** ")
    said = answer(table, "top3")
    assert f"**Answer.** {said}" in text and on_page(said) in page
    assert "\n\n".join(markdown_parts(result_tables(table), 3)) in text
    assert "ahead: undecided" in text
    titles = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert titles == ["Tables", "Results by class", "Claims", "Tuning", "Methods"]
    assert "<svg" not in text and "\n\n\n" not in text


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The commands of a program that knows ``page_lab:study``, and what they print."""
    offer(monkeypatch, "page_lab", study=a_study())
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> str:
        ended, out, err = topk(*arguments)
        assert ended == code
        return out + err

    return call


def test_the_command_writes_the_report_in_the_format_asked_for(
    store: Path, tmp_path: Path, printed: Callable[..., str]
) -> None:
    asked = ("report", "page_lab:study", "--store", str(store), "--format", "md")
    assert printed(*asked) == "wrote page.md\n"
    named = dataclasses.replace(a_study(), reference="page_lab:study")
    assert (tmp_path / "page.md").read_text() == markdown_report(named, store=store)
    assert "--to must" in printed(*asked, "--to", "page.html", code=2)


def test_json_has_numbers_truth_values_and_nulls(store: Path, printed: Callable[..., str]) -> None:
    rows = json.loads(printed("table", "page_lab:study", "--store", str(store), "--metric", "top3", "--json"))
    assert len(rows) == 9 and {type(row["best"]) for row in rows} == {bool}
    assert {type(row["mean"]) for row in rows} == {float}
    baseline, svm, _ = rows[:3]
    assert baseline["difference"] is None and baseline["p"] is None and baseline["n"] == 5
    assert isinstance(svm["difference"], float) and svm["published"] is None
    assert {row["mark"] for row in rows} <= {None, "better", "worse"} and baseline["mark"] is None
    (claim,) = json.loads(printed("table", "page_lab:study", "--claims", "--store", str(store), "--json"))
    assert claim["stand_in"] is False and isinstance(claim["power"], float | None) and claim["n"] == 5


def test_results_by_class_are_printed_in_the_format_asked_for(
    store: Path, printed: Callable[..., str]
) -> None:
    asked = ("table", "page_lab:study", "--store", str(store), "--by", "class")
    rows = json.loads(printed(*asked, "--json"))
    assert len(rows) == 9 * 10 and {row["seeds"] for row in rows} == {5}
    svm = [row for row in rows if row["loss"] == NAMES[1] and row["regime"] == "noise-0.4"]
    cell = table_of(a_study(), store=store).cells[NAMES[1], "noise-0.4", "top3"].value
    assert cell is not None
    assert sum(row["topk"] * row["images"] for row in svm) / IMAGES == pytest.approx(cell.mean)
    assert printed(*asked, "--format", "csv").count("\n") == 91
    for wrong in ((*asked, "--format", "latex"), (*asked[:-1], "loss")):
        assert "--by " in printed(*wrong, code=2)


@pytest.mark.slow  # ten seconds; one plot is drawn twice below
def test_the_page_is_the_same_bytes_again(page: str, store: Path) -> None:
    assert report_of(a_study(), store=store) == page


@pytest.mark.slow
def test_of_a_study_that_still_runs_there_is_what_there_is(tmp_path: Path) -> None:
    write(a_study(), tmp_path, stop=30)
    page = report_of(a_study(), store=tmp_path)
    assert "No plot of differences" in page and page.count("<svg") >= 1
    assert page.count("<h3>top-") == 1  # of a published number; of the other metric there is none


def test_without_a_ledger_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds nothing of study 'page'"):
        report_of(a_study(), store=tmp_path)


@pytest.mark.parametrize("kind", ["accuracy", "differences"])
def test_intervals_are_drawn_in_the_row_of_their_loss(store: Path, table: Table, kind: str) -> None:
    made = plot_of(a_study(), kind, store=store, metric="top1")
    names = [label.get_text() for label in made.axes[0].get_yticklabels()]
    rows = [name.replace(" ", "_").replace("\n", "_") for name in names]
    for column, ax in zip(table.columns, made.axes, strict=True):
        assert ax.get_title("left") == column and len(ax.containers) == len(rows)
        for row, bar in zip(rows, ax.containers, strict=True):
            cell = table.cells[row, column, "top1"]
            drawn = cell.value if kind == "accuracy" else cell.difference
            (marker, _, (interval,)) = bar.lines  # type: ignore[attr-defined]
            assert drawn is not None and marker.get_xydata().tolist() == [[100 * drawn.mean, rows.index(row)]]
            ends = interval.get_segments()[0][:, 0]
            assert ends == pytest.approx([100 * drawn.low, 100 * drawn.high])
            hollow = kind == "differences" and not cell.mark
            assert (marker.get_markerfacecolor() == "none") == hollow


def test_curves_over_k_pass_through_the_tables_numbers(store: Path, table: Table) -> None:
    made = plot_of(a_study(), "topk", store=store, only="noise-0.2/*")
    for line in made.axes[0].lines:
        ys = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))  # type: ignore[arg-type]
        for k in (1, 3):
            cell = table.cells[str(line.get_label()), "noise-0.2", f"top{k}"].value
            assert cell is not None and ys[k] == pytest.approx(100 * cell.mean)


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("accuracy", {"metric": "top7"}, "--metric"),
        ("accuracy", {"only": "nothing*"}, "nothing"),
        ("search", {"metric": "top3"}, "--metric"),  # which this plot does not use
        ("differences", {"data": "here"}, "--data"),
    ],
)
def test_what_cannot_be_plotted_is_refused(
    store: Path, kind: str, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(UserError, match=named):
        plot_of(a_study(), kind, store=store, **changes)


def test_a_table_prints_as_a_table_and_shows_itself(table: Table) -> None:
    assert "K = 3; 5 seeds; one search of 10 trials" in str(table) and "Table(" not in repr(table)
    assert table._repr_html_() == table.to_html() and table.to_html().count("<table") == 2
    frame = table.to_pandas()
    assert len(frame) == len(table.cells) and "half_width" in frame.columns
    with pytest.raises(UserError, match="--metric must be one of"):
        table.to_latex(["top9"])
