"""Studies of many losses: a plot names a few of them, a page's table falls apart into the models'."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from topk_platform import LabelNoise, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.records import Tally
from topk_platform.reports.page import content
from topk_platform.results import Cell, Table, estimate
from topk_platform.results.table import row_and_column

JITTER = (0.0, 0.004, -0.003, 0.002)
LOSSES = [Loss("cross_entropy"), *(Loss("focal", label=f"loss-{i}") for i in range(15))]


@pytest.fixture(scope="module")
def table() -> Table:
    """Of two models, the second in one regime alone; loss i is i points ahead everywhere, the last loss only there."""
    regimes = [Regime("a", "digits"), Regime("b", "digits", (LabelNoise(0.5),))]
    made = {"losses": LOSSES, "k": 3, "recipe": Recipe(1)}
    arms = [*grid(regimes, [Model("linear")], **made), *grid(regimes[1:], [Model("mlp")], **made)]
    study, cells = Study("crowd", arms, topk=(1, 3)), {}
    for arm in arms:
        key, gain = row_and_column(study, "regime", arm), 0.01 * LOSSES.index(arm.loss)
        ahead = estimate([gain + j for j in JITTER]) if gain else None
        for metric in ("top1", "top3"):
            value = estimate([0.5 + gain + j for j in JITTER])
            cells[(*key, metric)] = Cell(value, ahead, confirmed=Tally(4), metric=metric)
    rows, columns = ([*dict.fromkeys(key[axis] for key in cells)] for axis in (0, 1))
    places = {key[:2]: {} for key in cells}
    return Table(study, tuple(rows), tuple(columns), cells, {}, confirmations=places)


def test_a_page_has_a_table_of_each_model(table: Table) -> None:
    parts = list(content._titled(table))
    assert [title for title, _ in parts] == [
        f"top-{k} accuracy, %: {model}" for model in ("linear", "mlp") for k in (3, 1)
    ]
    for title, block in parts:
        model = title.rpartition(" ")[2]
        shown = block.table
        assert shown.columns == (("a", "b") if model == "linear" else ("b",))
        assert len(shown.rows) == 16 and all(row.startswith(f"{model}/") for row in shown.rows)
        assert shown.tests == table.tests


def changed(table: Table, model: str, change: Callable[[Cell], Cell | None]) -> Table:
    """The table with other cells of a model, or without those that change to None."""
    cells = {
        key: change(cell) if key[0].startswith(f"{model}/") else cell for key, cell in table.cells.items()
    }
    return dataclasses.replace(table, cells={key: cell for key, cell in cells.items() if cell is not None})
