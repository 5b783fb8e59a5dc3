"""The answer in words says what the marks of the table support, and no more."""

from __future__ import annotations

import dataclasses
import re

from hypothesis import given
from hypothesis import strategies as st

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.records import Tally
from topk_platform.reports.answer import answer
from topk_platform.results import Cell, ChosenValues, Table, estimate
from topk_platform.results.cells import marked

REGIMES = ("r0", "r1", "r2")
LOSSES = ("cross_entropy", "ldam", "focal")
JITTER = (0.0, 0.011, -0.007, 0.004, -0.008)


def a_study() -> Study:
    losses = [
        Loss(name, space={"learning_rate": Float(0.01, 1.0)}, first={"learning_rate": 0.1}) for name in LOSSES
    ]
    arms = grid([Regime(r, "digits") for r in REGIMES], [Model("linear")], losses, k=3, recipe=Recipe(1))
    return Study("s", arms, topk=(3,), seeds=5)


def a_table(gains: dict[tuple[str, str], float], seeds: int = 5, lost: int = 0, left: int = 0) -> Table:
    """A table of losses by regimes, each so far above the baseline; of the first loss's cells, seeds were lost."""
    study = a_study()
    cells: dict[tuple[str, str, str], tuple[Cell, Tally]] = {}
    for regime in REGIMES:
        for loss in LOSSES:
            gain = gains.get((loss, regime), 0.0)
            tally = Tally(completed=seeds, diverged=lost if loss == LOSSES[1] else 0)
            apart = [gain + j for j in JITTER[:seeds]]
            difference = None if loss == LOSSES[0] else estimate(apart)
            cells[loss, regime, "top3"] = (
                Cell(estimate([0.7 + g for g in apart]), difference, confirmed=tally),
                Tally(completed=seeds),
            )
    rows = {
        (loss, regime): {s: {"status": "completed"} for s in range(seeds)}
        | {10 + s: {"status": "diverged"} for s in range(lost if loss == LOSSES[1] else 0)}
        for loss in LOSSES
        for regime in REGIMES
    }
    return Table(study, LOSSES, REGIMES, marked(cells), {}, confirmations=rows, left=left)


def test_one_winner_in_one_regime() -> None:
    said = answer(a_table({("ldam", "r2"): 0.1}), "top3")
    assert re.fullmatch(
        r"In top-3 accuracy, marked as better than cross_entropy: in r2, ldam by 10\.0 ± \d\.\d points "
        r"\(n = 5, p (= 0\.00\d+|< 0\.001) after Holm's correction\)\. "
        r"In the other 2 regimes, no loss is marked as better\.",
        said,
    ), said


def test_several_better_ones_are_not_ranked_among_themselves() -> None:
    said = answer(a_table({("ldam", "r2"): 0.1, ("focal", "r2"): 0.2}), "top3")
    assert "in r2, focal by 20.0" in said and "and 1 other loss by less" in said
    assert "ldam" not in said
    alike = answer(a_table({("ldam", "r2"): 0.2, ("focal", "r2"): 0.2}), "top3")
    assert "in r2, ldam by 20.0" in alike and "and 1 other loss by as much or less" in alike


def test_nobody_better_is_not_called_equal() -> None:
    said = answer(a_table({}), "top3")
    assert said.startswith(
        "No loss is marked as better than cross_entropy in top-3 accuracy in any of 3 regimes"
    )
    assert re.search(r"does not show that they are equal: 95 % intervals reach up to \+1\.0 points", said)


def test_worse_ones_are_reported() -> None:
    said = answer(a_table({("ldam", "r1"): -0.1}), "top3")
    assert "No loss is marked as better" in said
    assert re.search(
        r"\. Marked as worse: in r1, ldam by 10\.0 ± \d\.\d points "
        r"\(n = 5, p (= 0\.00\d+|< 0\.001) after Holm's correction\)\.$",
        said,
    ), said


def test_of_several_worse_ones_the_one_furthest_behind_is_reported_for_each_regime() -> None:
    behind = {("ldam", "r1"): -0.1, ("focal", "r1"): -0.2, ("focal", "r2"): -0.3}
    worse = answer(a_table({**behind, ("ldam", "r0"): 0.1}), "top3").partition("Marked as worse: ")[2]
    assert re.fullmatch(
        r"in r2, focal by 30\.0 [^;]*; in r1, focal by 20\.0 [^;]*, and 1 other loss by less\.", worse
    ), worse


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


def test_differences_that_are_equal_for_all_seeds_test_nothing() -> None:
    table = a_table({})
    level = dataclasses.replace(table.cells["ldam", "r1", "top3"], difference=estimate([0.1] * 5))
    cells = {key: (level if cell.difference else cell, Tally(5)) for key, cell in table.cells.items()}
    said = answer(dataclasses.replace(table, cells=marked(cells)), "top3")
    assert "was tested, because the differences of all seeds are equal, and show no spread" in said


def test_too_few_seeds_test_nothing() -> None:
    said = answer(a_table({("ldam", "r2"): 0.1}, seeds=2), "top3")
    assert (
        "No difference in top-3 accuracy to cross_entropy was tested, because a test needs three seeds of both losses."
        in said
    )
    assert "The highest means, which may be chance" in said and "better than" not in said


def test_many_losses_with_the_highest_mean_are_counted() -> None:
    table = a_table({}, seeds=2)
    best = dataclasses.replace(table.cells["ldam", "r1", "top3"], best=True)
    alike = {(f"loss{i}", "r1", "top3"): best for i in range(5)}
    said = answer(dataclasses.replace(table, rows=tuple(row for row, _, _ in alike), cells=alike), "top3")
    assert "those of loss0, loss1, loss2 and 2 more in r1." in said


def test_lost_seeds_take_the_claim_away_and_are_said_first() -> None:
    said = answer(a_table({("ldam", "r2"): 0.1}, lost=2), "top3")
    assert (
        said.startswith("Of 51 confirmations, 6 diverged or failed, without a result.")
        and "ldam by" not in said
    )


def test_what_has_not_ended_is_said_first_and_nothing_is_said_of_nothing() -> None:
    assert answer(a_table({}, left=4), "top3").startswith(
        "4 trials have not ended yet, so this may still change. "
    )
    assert answer(a_table({}, left=1), "top3").startswith(
        "1 trial has not ended yet, so this may still change. "
    )
    empty = dataclasses.replace(a_table({}), cells={}, confirmations={})
    assert answer(empty, "top3") == "No confirmation has a result yet, so there is nothing to say."


def test_without_a_baseline_nothing_is_tested() -> None:
    table = a_table({("ldam", "r2"): 0.1})
    bare = dataclasses.replace(table, study=dataclasses.replace(table.study))
    object.__setattr__(bare.study, "baseline", None)
    assert "has no baseline, so no difference in top-3 accuracy was tested" in answer(bare, "top3")


def test_one_loss_is_compared_with_nobody() -> None:
    table = a_table({})
    alone = dataclasses.replace(
        table,
        rows=LOSSES[:1],
        cells={key: cell for key, cell in table.cells.items() if key[0] == LOSSES[0]},
    )
    said = answer(alone, "top3")
    assert said.startswith(
        "There is one loss, and nothing to compare it with. cross_entropy reaches a top-3 accuracy"
    )
    assert said.count("70.0 ± 1.0 % in r") == 3 and "better" not in said


GAIN = st.sampled_from([-0.2, -0.02, -0.005, 0.0, 0.005, 0.02, 0.2])


@given(
    st.dictionaries(st.tuples(st.sampled_from(LOSSES[1:]), st.sampled_from(REGIMES)), GAIN), st.integers(1, 5)
)
def test_whoever_is_called_better_is_marked_so(gains: dict[tuple[str, str], float], seeds: int) -> None:
    table = a_table(gains, seeds)
    said = answer(table, "top3")
    named = set(re.findall(r"in (r\d), (\w+) by", said.partition("Marked as worse")[0]))
    better = {(c, row) for (row, c, _), cell in table.cells.items() if cell.mark == "better"}
    assert named <= better
    assert {column for column, _ in named} == {column for column, _ in better}
    worse = {(c, row) for (row, c, _), cell in table.cells.items() if cell.mark == "worse"}
    behind = set(re.findall(r"in (r\d), (\w+) by", said.partition("Marked as worse")[2]))
    assert behind <= worse and {column for column, _ in behind} == {column for column, _ in worse}
    assert ("marked as better than" in said and "No loss" not in said) == bool(better)


def test_it_says_how_large_a_difference_would_have_been_seen() -> None:
    said = answer(a_table({}), "top3")
    assert re.search(
        r" A true difference of \d\.\d points would have been seen with a chance of 80 %", said
    ), said


def test_of_two_differences_no_size_is_said_twice() -> None:
    table = a_table({})
    few = {key: c for key, c in table.cells.items() if key[0] == LOSSES[0] or key[1:] == ("r0", "top3")}
    for sizes in ((0.01, 0.02), (0.02, 0.02)):
        of = dict(zip(LOSSES[1:], sizes, strict=True))
        cells = {key: dataclasses.replace(c, detectable=of.get(key[0])) for key, c in few.items()}
        said = answer(dataclasses.replace(table, cells=cells), "top3")
        assert said.count("2.0 points would have been seen with a chance of 80 %.") == 1, said


def test_what_was_searched_once_is_not_tested_and_the_sentence_says_how_to_get_more() -> None:
    table = a_table({("ldam", "r2"): 0.1})
    cells = {
        key: (
            dataclasses.replace(
                cell,
                difference=cell.difference
                and dataclasses.replace(cell.difference, covers="seeds and images, one search"),
            ),
            Tally(completed=5),
        )
        for key, cell in table.cells.items()
    }
    said = answer(dataclasses.replace(table, cells=marked(cells)), "top3")
    assert "was tested, because a loss was searched once, and another search may choose otherwise" in said
    assert "`topk run s --searches 3`" in said and "better than" not in said
    findings = dataclasses.replace(table, cells=marked(cells), stored=False)
    assert "another search may choose otherwise. The" in answer(findings, "top3")


def test_a_loss_on_two_networks_has_nothing_to_be_compared_with() -> None:
    table, means = a_table({}), estimate([0.7, 0.71])
    rows = ("mlp/cross_entropy", "linear/cross_entropy")
    cells = {(row, "r0", "top3"): Cell(means, best=row == rows[0]) for row in rows}
    said = answer(dataclasses.replace(table, rows=rows, cells=cells), "top3")
    assert said.startswith(
        "There is one loss, and nothing to compare it with. The highest means, which may be chance"
    )
    assert "three seeds of both losses" not in said


def test_what_is_shown_to_be_equivalent_is_reported() -> None:
    study = dataclasses.replace(a_study(), equivalence=5.0)
    cells = {key: (cell, Tally(completed=5)) for key, cell in a_table({}).cells.items()}
    table = dataclasses.replace(a_table({}), study=study, cells=marked(cells, 0.05))
    assert "Shown to lie within 5 points of cross_entropy: in r0, ldam and focal;" in answer(table, "top3")
    assert study.to_json() != a_study().to_json() and "equivalence" not in a_study().to_json()
    assert [study.arm_id(arm) for arm in study.arms] == [a_study().arm_id(arm) for arm in a_study().arms]


def test_a_search_of_which_half_diverged_is_named_in_the_answer() -> None:
    table = a_table({})
    searched = {"ldam": Tally(completed=5, diverged=4, failed=1), "focal": Tally(completed=6, diverged=4)}
    cells = {
        key: dataclasses.replace(cell, searched=searched.get(key[0], Tally(completed=10)))
        for key, cell in table.cells.items()
    }
    text = answer(dataclasses.replace(table, cells=cells), "top3")
    assert text.endswith(
        "Half of the search trials or more diverged or failed: those of ldam in r0 (5 of 10), ldam in r1 (5 of 10), "
        "ldam in r2 (5 of 10)."
    )
    assert "diverged or failed" not in answer(table, "top3")


def test_the_answer_says_how_many_searched_arms_kept_their_first_values() -> None:
    first = {"learning_rate": 0.1}
    losses = [Loss(name, {"learning_rate": Float(0.01, 1, log=True)}, first) for name in LOSSES]
    arms = grid([Regime("r0", "digits")], [Model("linear")], losses, k=3, recipe=Recipe(1))
    study = Study("s", arms, topk=(3,), trials=4, seeds=5)

    def text(chosen: dict[str, float], trials: int = 4) -> str:
        choices = {
            (loss, "r0"): (ChosenValues({"learning_rate": rate}, 0.5, trials, 0),)
            for loss, rate in chosen.items()
        }
        return answer(dataclasses.replace(a_table({}), study=study, choices=choices), "top3")

    line = "2 of 3 searched arms kept the values that their search began with"
    assert line in text({"cross_entropy": 0.1, "ldam": 0.1, "focal": 0.3})
    assert "kept the values" not in text({"cross_entropy": 0.1, "ldam": 0.2, "focal": 0.3})
    assert "kept the values" not in text(
        {"cross_entropy": 0.1, "ldam": 0.1}, trials=3
    )  # one is still to come
