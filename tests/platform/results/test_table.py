from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Sequence

import pyarrow.parquet as pq
import pytest
from made_histories import make_history, make_row, make_table
from made_studies import small_study
from rich.console import Console

from topk_platform import Float, Loss, Model, Published, Study
from topk_platform.protocol import Tally
from topk_platform.records.history import ArmHistory
from topk_platform.reports.result_tables import to_markdown, to_rich
from topk_platform.reports.table_data import to_arrow, to_csv, to_files
from topk_platform.results import Cell, Table, build_table, estimate
from topk_platform.results.cells import marked

CE = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1})
SVM = Loss("smooth_topk_svm", {"tau": Float(0.01, 10, log=True)}, {"tau": 1.0})


FIXED = "cross_entropy", "smooth_topk_svm"


def a_study(*models: Model, losses: Sequence[Loss | str] = (CE, SVM)) -> Study:
    regimes = ("clean", "noisy")
    return small_study(*losses, regimes=regimes, models=models or ["mlp"], trials=2, seeds=3)


def a_table(*published: Published) -> Table:
    study = dataclasses.replace(a_study(), published=published)
    values = {
        "clean/mlp/cross_entropy": [0.9, 0.92, 0.94],
        "clean/mlp/smooth_topk_svm": [0.95, 0.96, 0.99],
        "noisy/mlp/cross_entropy": [0.7],
    }
    histories = {study.arm_id(arm): make_history(study, arm, values.get(arm.name, [])) for arm in study.arms}
    failed = next(history for history in histories.values() if history.arm.name == "noisy/mlp/cross_entropy")
    failed.confirm[0, 9] = {**make_row(study, failed.arm, 0, 9, 0.0), "status": "failed"}
    return build_table(study, histories)


@pytest.mark.parametrize(
    ("ours", "sure"),
    [
        ([0.92, 0.81, 0.72], True),
        ([0.91, 0.82, 0.71, 0.61], True),
        ([0.92, 0.81], False),  # two pairs tell nothing of their spread
        ([0.91, 0.81, 0.71], False),  # nor do equal ones, as on a small test set
        ([0.91, 0.81, 0.70], False),  # its interval holds 0
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_an_interval_without_a_spread_is_not_believed(ours: list[float], sure: bool, sign: int) -> None:
    theirs = [0.9, 0.8, 0.7, 0.6]
    outcome = estimate([sign * (a - b) for a, b in zip(ours, theirs, strict=False)])
    assert outcome is not None and outcome.excludes_zero == sure


def test_where_differences_are_equal_but_for_rounding_no_effect_is_detectable() -> None:
    difference = estimate([0.91 - 0.81, 0.92 - 0.82, 0.9 - 0.8])
    assert difference is not None and not difference.has_spread and difference.half_width > 0
    (cell,) = marked({("a", "b", "top1"): (Cell(None, difference), Tally(3))}).values()
    assert cell.detectable is None and cell.mark == ""
    assert (cell.p_holm, cell.family_size) == (None, 0)


def test_the_table_has_a_row_per_loss_a_column_per_regime_and_marks_the_best() -> None:
    table = a_table()
    assert (table.rows, table.columns) == (("cross_entropy", "smooth_topk_svm"), ("clean", "noisy"))
    ce, svm = table.cells["cross_entropy", "clean", "top3"], table.cells["smooth_topk_svm", "clean", "top3"]
    assert (ce.best, svm.best) == (False, True)
    assert ce.difference is None
    assert svm.difference is not None and svm.difference.mean == pytest.approx((0.05 + 0.04 + 0.05) / 3)
    assert ("smooth_topk_svm", "noisy", "top3") not in table.cells
    alone = table.cells["cross_entropy", "noisy", "top3"].value
    assert alone is not None and (alone.mean, alone.n, alone.once) == (pytest.approx(0.7), 1, True)
    (choice,) = table.choices["smooth_topk_svm", "clean"]
    assert choice.values == {"tau": 1.0}
    assert [arm for _, arm, _ in table.failures] == ["noisy/mlp/cross_entropy"]


def test_a_chosen_value_at_an_end_of_its_range_is_marked() -> None:
    last = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.99})
    text = to_markdown(make_table(a_study(losses=(last, SVM)), lambda arm: [0.5, 0.6]))
    assert "| learning_rate 0.99 (end of its range) |" in text and "| tau 1 |" in text


def test_several_models_get_rows_of_their_own_and_their_own_baseline() -> None:
    study = a_study(Model("mlp"), Model("mlp", label="wide"))
    values = {"mlp": [0.5, 0.6, 0.7], "wide": [0.1, 0.2, 0.3]}
    table = make_table(study, lambda arm: values[arm.model.label])
    losses = ("cross_entropy", "smooth_topk_svm")
    assert table.rows == tuple(f"{model}/{loss}" for model in ("mlp", "wide") for loss in losses)
    difference = table.cells["wide/smooth_topk_svm", "clean", "top3"].difference
    assert difference is not None and difference.mean == pytest.approx(0)


def test_the_models_of_a_single_regime_stand_side_by_side_each_with_its_own_best() -> None:
    both = a_study(Model("mlp", label="units-2"), Model("mlp", label="units-4"))
    study = both.only("clean/*")
    values = {"units-2": [0.5, 0.6, 0.7], "units-4": [0.1, 0.2, 0.3]}
    table = make_table(study, lambda arm: values[arm.model.label])
    assert (table.rows, table.columns) == (("cross_entropy", "smooth_topk_svm"), ("units-2", "units-4"))
    assert all(cell.best for cell in table.cells.values())  # equal means, each column's own best
    assert "| units-4 | cross_entropy | **20.0 ± 24.8** |  |" in to_markdown(table)
    (row, *_) = csv.DictReader(io.StringIO(to_csv(table)))
    assert (row["loss"], row["model"]) == ("cross_entropy", "units-2")


def test_trials_that_do_not_count_are_reported() -> None:
    study = a_study()
    old = ArmHistory(study.arms[0], outdated=Counter({"other code": 7, "torch 2.14.0 in place of 2.15.0": 2}))
    text = to_markdown(build_table(study, {study.arm_id(study.arms[0]): old}))
    assert "9 recorded trials are not counted: 7 of other code; 2 of torch 2.14.0 in place of 2.15.0." in text
    assert "not counted" not in to_markdown(a_table())


def test_a_table_of_several_machines_says_so() -> None:
    study = a_study()
    arm = study.arms[0]
    mixed = make_history(study, arm, [0.9, 0.92])
    mixed.confirm[0, 2]["versions"] = '{"machine": "another", "torch": "2.14.0"}'
    text = to_markdown(build_table(study, {study.arm_id(arm): mixed}))
    assert "3 of machine m, torch 2.15.0; 1 of machine another, torch 2.14.0." in text
    assert "machine m" not in to_markdown(a_table())


CLEAN = {"regime": "clean", "loss": "cross_entropy", "metric": "top3", "source": "A, Table 1"}
NOISY = {"regime": "noisy", "loss": "smooth_topk_svm", "source": "B"}
PRINTED = (
    Published(**CLEAN, value=91.26, spread=0.14, runs=4),
    Published(**NOISY, metric="top3", value=88.8, runs=1, split="validation"),
    Published(**NOISY, metric="macro_top1", value=50.0),
)


def test_published_numbers_change_nothing_of_ours() -> None:
    """What is printed of a study without them is what is left when they are taken away."""
    with_them, without = a_table(*PRINTED), a_table()
    for key, cell in with_them.cells.items():
        bare = dataclasses.replace(cell, published=None)
        nothing = Cell(None, searched=cell.searched, metric=key[2], primary=key[2] == "top3")
        assert bare == without.cells.get(key, nothing)
    assert len(with_them.cells) == len(without.cells) + 2


def test_csv_has_columns_of_its_own_for_what_is_published() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(a_table(*PRINTED)))))
    by_cell = {(r["loss"], r["regime"], r["metric"]): r for r in rows}
    both = by_cell["cross_entropy", "clean", "top3"]
    assert float(both["mean"]) == pytest.approx(0.92)
    assert (float(both["published"]), float(both["published_sd"])) == pytest.approx((0.9126, 0.0014))
    printed = (both["published_n"], both["published_split"], both["published_source"])
    assert printed == ("4", "test", "A, Table 1")
    alone = by_cell["smooth_topk_svm", "noisy", "top3"]
    assert [alone[name] for name in ("mean", "n", "published_sd")] == [""] * 3
    assert alone["published_split"] == "validation"
    assert by_cell["cross_entropy", "clean", "top1"]["published"] == ""
    assert (
        to_arrow(a_table(*PRINTED)).num_rows == len(rows) == 3 * 10 + 2
    )  # plain, macro and three groups, at two k


def test_a_table_of_nothing_but_published_numbers_prints() -> None:
    study = dataclasses.replace(a_study(), published=PRINTED)
    table = build_table(study, {study.arm_id(arm): ArmHistory(arm) for arm in study.arms})
    assert len(table.cells) == 3 and all(
        cell.value is None and not cell.best for cell in table.cells.values()
    )
    assert "| clean | cross_entropy | – | 91.3, sd 0.1, n = 4 |" in to_markdown(table)
    assert "91.3, sd 0.1" in shown(table)


CE_VALUES = [0.5, 0.6, 0.7, 0.5, 0.6]


def with_ends(
    ends: dict[str, dict[int, str]],
    searches: dict[str, str] | None = None,
    losses: Sequence[Loss | str] = (CE, SVM),
) -> Table:
    """A regime with two losses, the SVM well ahead on every seed; some confirmations, or all of a search, end badly."""
    study = dataclasses.replace(a_study(losses=losses), seeds=5).only("clean/*")
    ahead = [value + gain for value, gain in zip(CE_VALUES, (0.2, 0.21, 0.22, 0.2, 0.2), strict=True)]
    histories = {}
    for arm, tests in zip(study.arms, (CE_VALUES, ahead), strict=True):
        past = make_history(study, arm, tests)
        for seed, status in ends.get(arm.loss.label, {}).items():
            past.confirm[0, seed] |= {"status": status, **dict.fromkeys(f"test.{m}" for m in study.metrics)}
        if arm.loss.label in (searches or {}):
            past = ArmHistory(
                arm, {n: row | {"status": "diverged", "reason": "why"} for n, row in past.search.items()}
            )
        histories[study.arm_id(arm)] = past
    return build_table(study, histories)


def shown(table: Table, width: int = 200) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(to_rich(table))
    return console.export_text()


def test_seeds_that_diverged_are_reported_wherever_the_mean_is() -> None:
    table = with_ends({"smooth_topk_svm": {2: "diverged", 3: "diverged", 5: "failed"}})
    left = table.cells["smooth_topk_svm", "clean", "top3"].value
    assert left is not None and (left.mean, left.n) == (pytest.approx(0.7), 2)
    for printed in (to_markdown(table), shown(table)):
        assert "2 of 5, 2 diverged, 1 failed" in printed
        assert "Of 10 confirmations, 2 diverged and 1 failed." in printed
    rows = csv.DictReader(io.StringIO(to_csv(table)))
    (row,) = [r for r in rows if r["metric"] == "top3" and r["diverged"] != "0"]
    assert (row["n"], row["seeds"], row["diverged"], row["failed"]) == ("2", "5", "2", "1")
    parquet = to_arrow(table).to_pylist()
    assert {(r["seeds"], r["diverged"], r["failed"]) for r in parquet} == {(5, 0, 0), (5, 2, 1)}
    assert "…" not in shown(table, 60) and "diverged" in shown(table, 60)
    assert "diverged" not in to_markdown(with_ends({})) + shown(with_ends({}))


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_what_is_left_of_diverged_seeds_is_neither_best_nor_better(status: str) -> None:
    sound = with_ends({}, losses=FIXED)
    broken = with_ends({"smooth_topk_svm": {5: status}}, losses=FIXED)
    key = ("smooth_topk_svm", "clean", "top3")
    assert (sound.cells[key].best, sound.cells[key].mark) == (True, "better")
    result = broken.cells[key]
    assert result.difference is not None and result.difference.excludes_zero  # on the four that are left
    assert (result.best, result.mark) == (False, "")
    assert broken.cells["cross_entropy", *key[1:]].best
    assert "▲" not in to_markdown(broken).replace("▲▼", "")


def test_where_arms_were_searched_differently_often_there_is_a_column_for_it() -> None:
    assert "▲" not in to_markdown(with_ends({}))  # one search marks nothing
    assert "searches |" not in to_markdown(with_ends({}, losses=FIXED))
    assert "+20.6 ± 1.1 | 0 |" in to_markdown(with_ends({}, losses=(CE, FIXED[1])))


def test_what_is_better_and_what_is_worse_is_marked_and_the_best_is_bold() -> None:
    study = dataclasses.replace(a_study(losses=(*FIXED, "focal")), seeds=5).only("clean/*")
    gains = {"cross_entropy": 0.0, "smooth_topk_svm": 0.2, "focal": -0.2}
    table = make_table(
        study, lambda arm: [v + gains[arm.loss.name] * (1 + n / 50) for n, v in enumerate(CE_VALUES)]
    )
    text = to_markdown(table, ["top3"])
    assert "| **78.8 ± 10.6** | +20.8 ± 0.8 | ▲ |" in text and "| 37.2 ± 10.3 | -20.8 ± 0.8 | ▼ |" in text
    marks = {row["loss"]: row["mark"] for row in csv.DictReader(io.StringIO(to_csv(table, ["top3"])))}
    assert marks == {"cross_entropy": "", "smooth_topk_svm": "better", "focal": "worse"}


def test_nobody_is_worse_than_what_is_left_of_a_baseline() -> None:
    study = a_study(losses=FIXED).only("clean/*")
    behind = ([0.9, 0.8, 0.7, 0.9], [0.8, 0.69, 0.6, 0.79])
    made = [make_history(study, arm, tests) for arm, tests in zip(study.arms, behind, strict=True)]
    study = dataclasses.replace(study, seeds=4)
    histories = dict(zip(map(study.arm_id, study.arms), made, strict=True))
    key = ("smooth_topk_svm", "clean", "top3")
    assert build_table(study, histories).cells[key].mark == "worse"
    made[0].confirm[0, 4]["status"] = "diverged"
    result = build_table(study, histories).cells[key]
    assert result.difference is not None and result.difference.excludes_zero and result.difference.n == 3
    assert (result.mark, result.best) == ("", True)


def test_an_arm_without_a_result_is_reported_with_the_reason() -> None:
    search = with_ends({}, {"smooth_topk_svm": "diverged"})
    (result,) = search.fruitless
    assert (result.arm, result.phase, result.ends.diverged) == ("clean/mlp/smooth_topk_svm", "search", 2)
    assert f"{result.key}: why." in to_markdown(search) and f"{result.key}: why." in shown(search, 400)
    seeds = with_ends({"smooth_topk_svm": {1: "failed"} | dict.fromkeys(range(2, 6), "diverged")})
    assert "confirmations 0 of 5, 4 diverged, 1 failed." in to_markdown(seeds)
    for some in ({1: "diverged"}, dict.fromkeys(range(1, 5), "diverged")):
        assert with_ends({"smooth_topk_svm": some}).fruitless == ()


def test_a_part_of_the_arms_has_the_numbers_and_marks_of_the_whole() -> None:
    study = dataclasses.replace(a_study(losses=FIXED), seeds=5)
    values = {
        "cross_entropy": [0.9, 0.92, 0.94, 0.95, 0.96],
        "smooth_topk_svm": [0.5, 0.51, 0.52, 0.53, 0.55],
    }
    histories = {study.arm_id(arm): make_history(study, arm, values[arm.loss.label]) for arm in study.arms}
    whole = build_table(study, histories)
    part = build_table(study, histories, study.only("noisy/*/smooth*").arms)
    assert (part.rows, part.columns, len(part.cells)) == (("smooth_topk_svm",), ("noisy",), 10)
    assert part.cells.items() <= whole.cells.items()
    assert (
        part.confirmation_ends.ended == 5 and part.family_size == whole.family_size == 2
    )  # those that marks are corrected for
    assert part.cells["smooth_topk_svm", "noisy", "top3"].mark == "worse"
    assert not part.cells["smooth_topk_svm", "noisy", "top3"].best


def test_means_that_differ_only_by_rounding_are_all_best() -> None:
    study = dataclasses.replace(a_study(losses=FIXED), seeds=3).only("clean/*")
    values = {"cross_entropy": [0.91, 0.77, 0.83], "smooth_topk_svm": [0.91, 0.83, 0.77]}
    table = make_table(study, lambda arm: values[arm.loss.label])
    assert len({cell.value.mean for cell in table.cells.values() if cell.value}) == 2
    assert all(cell.best for cell in table.cells.values())


def test_seeds_are_reported_one_by_one() -> None:
    files = to_files(with_ends({"smooth_topk_svm": {2: "diverged"}}))
    rows = pq.read_table(io.BytesIO(files["seeds.parquet"])).to_pylist()
    ends = [(r["loss"], r["regime"], r["seed"], r["status"]) for r in rows]
    assert ends[4] == ("cross_entropy", "clean", 5, "completed")
    assert ends[6] == ("smooth_topk_svm", "clean", 2, "diverged")
    assert (rows[0]["top3"], rows[6]["top3"]) == (0.5, None)
    assert files["seeds.csv"].startswith(b"loss,regime,seed,status,key,top1,top3,macro_top1")
