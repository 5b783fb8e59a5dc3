"""The answer in words says what the marks of the table support, and no more."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_histories import make_gains_table
from made_studies import searched, small_study

from topk_platform import Study
from topk_platform.protocol import Tally
from topk_platform.reports.answer import answer
from topk_platform.results import Table
from topk_platform.results.cells import marked

REGIMES = ("r0", "r1", "r2")
LOSSES = ("cross_entropy", "ldam", "focal")


def a_study() -> Study:
    return small_study(*map(searched, LOSSES), regimes=REGIMES, models=["linear"], topk=(3,), seeds=5)


def a_table(gains: dict[tuple[str, str], float], **more: Any) -> Table:
    return make_gains_table(a_study(), gains, **more)


def without_baseline() -> Table:
    table = a_table({("ldam", "r2"): 0.1})
    object.__setattr__(table.study, "baseline", None)
    return table


def alone() -> Table:
    table = a_table({})
    cells = {key: cell for key, cell in table.cells.items() if key[0] == LOSSES[0]}
    return dataclasses.replace(table, rows=LOSSES[:1], cells=cells)


def with_(difference: dict[str, object], gain: float = 0.1) -> Table:
    """A table whose differences have other fields, marked anew."""
    table = a_table({("ldam", "r2"): gain})
    cells = {}
    for key, cell in table.cells.items():
        changed = cell.difference and dataclasses.replace(cell.difference, **difference)  # type: ignore[arg-type]
        cells[key] = dataclasses.replace(cell, difference=changed), Tally(completed=5)
    return dataclasses.replace(table, cells=marked(cells))


AHEAD = {("ldam", "r2"): 0.1}
BEHIND = {("ldam", "r1"): -0.1, ("focal", "r1"): -0.2, ("focal", "r2"): -0.3, ("ldam", "r0"): 0.1}


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            a_table(AHEAD),
            r"^In top-3 accuracy, better than cross_entropy: in r2, ldam by 10\.0 ± 1\.0 points\. "
            r"If you must choose now, take the highest mean, which may be chance: \w+ in r0, r1\.$",
            "No loss",
        ),
        (
            a_table({**AHEAD, ("focal", "r2"): 0.2}),
            r"in r2, focal by 20\.0 [^;.]*\.\d points, and 1 more",
            "ldam by",
        ),
        (
            a_table({}),
            r"^No loss .* better or worse .*; a difference below about \d points would mostly be",
            " by ",
        ),
        (a_table(BEHIND), r"Worse: in r2, focal by 30\.0 [^;]*; in r1, focal by 20\.0 [^;]*, and 1 more", ""),
        (a_table(AHEAD, seeds=2), r"three seeds", "better than"),
        (a_table(AHEAD, lost=2), r"^No loss", "ldam by"),
        (dataclasses.replace(a_table({}), cells={}, confirmations={}), r"^There are no results yet", "loss"),
        (without_baseline(), r"no baseline", "better than"),
        (alone(), r"^There is one loss, .*(70\.0 ± 1\.0 % in r.*){3}", "better"),
        (with_({"low": 0.1, "high": 0.1, "half_width": 0.0}), r"no spread", "better than"),
        (with_({"covers": "seeds and images, one search"}), r"`topk run s --searches 3`", "better than"),
    ],
)
def test_the_answer_has_the_facts_of_its_table(table: Table, said: str, unsaid: str) -> None:
    text = answer(table, "top3")
    assert re.search(said, text), text
    assert not unsaid or unsaid not in text, text


def test_both_ends_of_an_interval_are_turned_around_where_a_loss_is_behind() -> None:
    table = a_table({("ldam", "r1"): -0.1})
    key = ("ldam", "r1", "top3")
    result = table.cells[key].difference
    assert result is not None
    skewed = dataclasses.replace(
        table.cells[key], difference=dataclasses.replace(result, low=-0.2, high=-0.09)
    )
    said = answer(dataclasses.replace(table, cells={**table.cells, key: skewed}), "top3")
    assert "ldam by 10.0 [9.0, 20.0] points" in said


GAIN = st.sampled_from([-0.2, -0.02, -0.005, 0.0, 0.005, 0.02, 0.2])


@given(
    st.dictionaries(st.tuples(st.sampled_from(LOSSES[1:]), st.sampled_from(REGIMES)), GAIN), st.integers(1, 5)
)
def test_whoever_is_called_better_is_marked_so(gains: dict[tuple[str, str], float], seeds: int) -> None:
    table = a_table(gains, seeds=seeds)
    said = answer(table, "top3")
    named = set(re.findall(r"in (r\d), (\w+) by", said.partition("Worse")[0]))
    better = {(c, row) for (row, c, _), cell in table.cells.items() if cell.mark == "better"}
    assert named <= better
    assert {column for column, _ in named} == {column for column, _ in better}
    worse = {(c, row) for (row, c, _), cell in table.cells.items() if cell.mark == "worse"}
    behind = set(re.findall(r"in (r\d), (\w+) by", said.partition("Worse")[2]))
    assert behind <= worse and {column for column, _ in behind} == {column for column, _ in worse}
    assert ("better than cross_entropy:" in said and "No loss" not in said) == bool(better)
    best = {(c, row) for (row, c, _), cell in table.cells.items() if cell.best}
    chosen = [
        (column, part.split(" in ")[0])
        for part in filter(None, said.partition("chance: ")[2].removesuffix(".").split("; "))
        for column in part.split(" in ")[1].split(", ")
    ]
    assert set(chosen) <= best
    assert {column for column, _ in chosen} == set(REGIMES) - {column for column, _ in better}


def test_what_is_shown_to_be_equivalent_is_reported() -> None:
    study = dataclasses.replace(a_study(), equivalence=5.0)
    cells = {key: (cell, Tally(completed=5)) for key, cell in a_table({}).cells.items()}
    table = dataclasses.replace(a_table({}), study=study, cells=marked(cells, 0.05))
    assert "Shown to lie within 5 points of cross_entropy: in r0, ldam and focal," in answer(table, "top3")
