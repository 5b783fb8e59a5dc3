"""The map of regimes over two numbers: which loss leads the baseline where, as the table marks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from topk_platform import Arm, LabelNoise, LongTail, Loss, Model, PerClass, Recipe, Regime, Study, grid
from topk_platform.reports import plots
from topk_platform.reports.plots import NothingToPlotError, Plotted
from topk_platform.reports.plots.axis import numbers_of
from topk_platform.reports.plots.style import looks
from topk_platform.reports.plots.winners import _colour_and_text, verdict_of, winners
from topk_platform.results.cells import Cell
from topk_platform.results.statistics import Estimate, estimate

LOSSES = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge")
NOISES, SIZES = (0.0, 0.4, 0.8), (5, 50)

Leads = Mapping[str, tuple[str, float]]
"""By loss, the table's mark and the mean difference."""


def regime(noise: float, size: int) -> Regime:
    return Regime(f"{noise}-{size}", "digits", (PerClass(size), LabelNoise(noise)))


def study(models: tuple[Model, ...] = (Model("mlp"),)) -> Study:
    regimes = [regime(noise, size) for noise in NOISES for size in SIZES]
    return Study("s", grid(regimes, models, [Loss(n) for n in LOSSES], k=3, recipe=Recipe(1)), topk=(1, 3))


def known(mean: float) -> Estimate:
    result = estimate([mean - 0.01, mean, mean + 0.01])
    assert result is not None
    return result


def cell(mark: str, mean: float) -> Cell:
    return Cell(value=known(0.5 + mean), difference=known(mean), mark=mark)


def plotted(leads: Mapping[str, Leads], made: Study | None = None) -> Plotted:
    """What is drawn of a study whose cells have these marks, by regime."""
    made = made or study()
    arms = {(arm.loss.label, f"{arm.regime.name}/{arm.model.label}"): arm for arm in made.arms}
    cells = {
        (*key, "top3"): cell(*leads.get(arm.regime.name, {}).get(arm.loss.label, ("", 0.0)))
        for key, arm in arms.items()
        if arm.loss.label != made.baseline
    }
    shown: Any = SimpleNamespace(
        study=made,
        arms=arms,
        table=SimpleNamespace(cells=cells),
        metric="top3",
        looks=looks([arm.loss for arm in made.arms]),
    )
    return shown


def texts(data: Plotted) -> dict[tuple[int, int], str]:
    (ax,) = winners(data).axes
    places = {tuple(map(round, text.get_position())): text.get_text() for text in ax.texts}
    return {(int(x), int(y)): text for (x, y), text in places.items()}


def test_each_regime_says_what_the_table_marks_there() -> None:
    result = texts(
        plotted(
            {
                "0.0-5": {"smooth_topk_svm": ("worse", -0.02), "noised_topk_hinge": ("worse", -0.03)},
                "0.4-5": {"smooth_topk_svm": ("worse", -0.02), "noised_topk_hinge": ("", 0.05)},
                "0.8-50": {"smooth_topk_svm": ("better", 0.02), "noised_topk_hinge": ("better", 0.03)},
                "0.0-50": {"smooth_topk_svm": ("better", 0.02), "noised_topk_hinge": ("", 0.03)},
            }
        )
    )
    assert result[0, 0] == "cross entropy\nall 2 others ▼"
    assert result[1, 0] == "no ▲\n1 of 2 ▼"
    assert result[2, 0] == "no ▲\n0 of 2 ▼"
    assert result[2, 1].splitlines() == ["noised topk", "hinge", "3.0 ± 2.5 · 2 of 2 ▲"]
    assert result[0, 1].splitlines() == ["smooth topk svm", "2.0 ± 2.5 · 1 of 2 ▲"]


def test_a_small_lead_in_nats_is_not_rounded_to_nothing() -> None:
    verdict = verdict_of([(study().arms[1], cell("better", -0.042))])
    data = plotted({})
    data.metric = "nll"  # type: ignore[misc]
    assert _colour_and_text(data, verdict, 0.042)[1].endswith("0.042 ± 0.025 · 1 of 1 ▲")


def test_fields_stand_at_their_numbers_and_the_deepest_colour_leads_by_the_most() -> None:
    data = plotted(
        {
            "0.4-50": {"smooth_topk_svm": ("better", 0.01)},
            "0.8-50": {"smooth_topk_svm": ("better", 0.04)},
        }
    )
    (ax,) = winners(data).axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "0.4", "0.8"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["5", "50"]
    assert ax.get_xlabel() == "label noise, probability" and ax.get_ylabel() == "training samples per class"
    colours = {(round(p.get_x() + 0.5), round(p.get_y() + 0.5)): p.get_facecolor()[:3] for p in ax.patches}
    assert colours[0, 0] == (1.0, 1.0, 1.0)
    assert sum(colours[2, 1]) < sum(colours[1, 1]) < 3
    assert plots.written(winners(data), "svg").startswith(b"<?xml")


def test_a_metric_of_which_less_is_better_shows_how_large_the_lead_is() -> None:
    arm = study().arms[1]
    verdict = verdict_of([(arm, cell("better", -0.02)), (study().arms[2], cell("better", -0.01))])
    assert verdict.leader == arm and verdict.lead is not None and verdict.lead.mean < 0


def test_every_model_has_a_panel_of_its_own() -> None:
    made = study((Model("mlp"), Model("linear")))
    result = winners(plotted({"0.8-5": {"smooth_topk_svm": ("better", 0.02)}}, made))
    titles = [ax.get_title("left") or ax.get_title() for ax in result.axes]
    assert [title.partition(":")[0] for title in titles] == ["mlp", "linear"]


def test_a_study_that_was_searched_once_says_that_nothing_is_tested() -> None:
    data = plotted({})
    cells: Any = data.table.cells
    for key, of in cells.items():
        cells[key] = replace(of, difference=replace(of.difference, covers="seeds, one search"))
    (ax,) = winners(data).axes
    assert {text.get_text() for text in ax.texts} == {"one search:\nnot tested"}
    assert (ax.get_title("left") or ax.get_title()).endswith("one search, nothing is tested")


def named(*conditions: tuple[Any, ...]) -> list[Regime]:
    return [Regime(f"r{i}", "digits", kept) for i, kept in enumerate(conditions)]


@pytest.mark.parametrize(
    "regimes",
    [
        named((LabelNoise(0.1),), (LabelNoise(0.2),)),
        named((LabelNoise(0.1), PerClass(5)), (LabelNoise(0.2), PerClass(6), LongTail(10))),
        named((LabelNoise(0.1), PerClass(5)), (LabelNoise(0.2),)),
        [*named((LabelNoise(0.1), PerClass(5)), (LabelNoise(0.2), PerClass(6))), Regime("other", "ring")],
    ],
)
def test_other_regimes_have_no_such_map(regimes: list[Regime]) -> None:
    assert len(numbers_of(regimes)) != 2


def test_what_cannot_be_drawn_says_why() -> None:
    only = Arm(Regime("r", "digits"), Model("mlp"), Loss("cross_entropy"), k=3, recipe=Recipe(1))
    made = Study("s", [only], topk=(1, 3))
    with pytest.raises(NothingToPlotError, match="must differ in exactly two numbers"):
        winners(plotted({}, made))
    data = plotted({})
    data.table.cells.clear()  # type: ignore[attr-defined]
    with pytest.raises(NothingToPlotError, match="no differences of top3 to a baseline"):
        winners(data)
