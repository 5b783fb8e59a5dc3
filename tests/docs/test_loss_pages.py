"""The losses' pages and their table say what the code says: names, parameters, soft targets, ranges."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import loss_pictures
import topk_losses
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.specs import Float
from topk_platform.training.loss_table import LOSSES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "losses"
ALIASES = {"BalancedSoftmax", "LapSumTopKLoss", "MeanAbsoluteError"}
"""Special cases, which stand on the pages of what they equal."""
MODULES = sorted(
    name
    for name, member in vars(topk_losses).items()
    if inspect.isclass(member)
    and name not in ALIASES
    and (
        (issubclass(member, topk_losses.Loss) and member is not topk_losses.Loss)
        or name == "ConformalTraining"
    )
)


def table() -> dict[str, list[str]]:
    """The cells of the table of all losses by class: page, parameters, soft targets, cost, consistency."""
    text = (FOLDER / "index.md").read_text()
    cells = [re.split(r" \| ", line.strip("| ")) for line in text.splitlines() if line.startswith("| [")]
    return {cell[1].strip("`").partition("(")[0]: cell for cell in cells}


def test_the_table_has_every_loss_and_each_its_page() -> None:
    assert sorted(table()) == MODULES
    pages = {re.findall(r"\((\w+)\.md\)", cell[0])[0] for cell in table().values()}
    assert (
        pages == set(LOSSES) - {"balanced_softmax"} == {page.stem for page in FOLDER.glob("*.md")} - {"index"}
    )


def test_a_loss_is_called_in_tables_what_its_page_calls_it() -> None:
    assert set(LOSS_CATALOGUE) == set(LOSSES)
    headings = {
        name: (FOLDER / f"{name}.md").read_text().partition("\n")[0]
        for name in set(LOSSES) - {"balanced_softmax"}
    }
    assert headings == {name: f"# {LOSS_CATALOGUE[name].title}" for name in headings}


def values_table(name: str) -> dict[str, list[str]]:
    """The rows of a page's table of values by parameter: allowed, first, searched."""
    text = (FOLDER / f"{name}.md").read_text().partition("## Values")[2].partition("##")[0]
    return {row[0].strip("`"): row[1:] for row in map(cells_of, text.splitlines()) if row[0].startswith("`")}


def cells_of(line: str) -> list[str]:
    return re.split(r" \| ", line.strip("| "))


@pytest.mark.parametrize("name", [name for name, entry in LOSS_CATALOGUE.items() if entry.searched])
def test_a_page_has_the_ranges_of_the_catalogue_and_the_code_its_first_values(name: str) -> None:
    takes = inspect.signature(LOSSES[name]).parameters
    for parameter, (dimension, first) in LOSS_CATALOGUE[name].searched.items():
        assert takes[parameter].default == first
        assert dimension.holds(first)
        if isinstance(dimension, Float):
            scale = ", logarithmic" if dimension.log else ""
            assert values_table(name)[parameter][2] == f"{dimension.low:g} to {dimension.high:g}{scale}"


@pytest.mark.parametrize("name", MODULES)
def test_the_table_has_the_parameters_and_soft_targets_of_the_code(name: str) -> None:
    module = getattr(topk_losses, name)
    takes = list(inspect.signature(module.__init__).parameters.values())[1:]
    own = [taken for taken in takes if taken.kind is taken.POSITIONAL_OR_KEYWORD]
    parameters = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in own]
    assert table()[name][1] == f"`{name}({', '.join(parameters)})`".replace("'", '"')
    assert table()[name][2] == ("yes" if module.soft_targets else "no")


def test_every_picture_of_a_loss_can_be_drawn() -> None:
    """Also that of a loss which is 0 everywhere, as the noised imbalanced hinge is with its largest noise."""
    points = 2 * loss_pictures.simplex(6)
    for name, entry in LOSS_CATALOGUE.items():
        for fixed in entry.drawn:
            assert np.isfinite(loss_pictures.values_on(name, fixed, points)).all(), name
    assert len(loss_pictures.level_sets("noised_imbalanced_topk_hinge").axes) >= 4
