"""Sizes of sets in tables, words, claims and plots: less is better everywhere, and they select nothing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_histories import JITTER, make_table
from made_studies import small_study

from topk_platform import Arm, Claim, Contrast, Published, Recipe, Study, UserError
from topk_platform.records.history import ArmHistory
from topk_platform.records.per_image import Ranks
from topk_platform.reports.answer import answer
from topk_platform.reports.result_tables import to_markdown
from topk_platform.reports.table_data import arms_to_json, to_arrow, to_csv
from topk_platform.results import Cell, Table, estimate
from topk_platform.results.cells import Runs
from topk_platform.results.contrasts import accuracies, credit
from topk_platform.results.decisions import decisions_of, of_runs
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import digest

LOSSES = ("cross_entropy", "ldam", "focal")
REGIMES = ("r0", "r1", "r2", "r3", "r4")
OURS, THEIRS = "r0/linear/ldam", "r0/linear/cross_entropy"


def a_study(**changes: Any) -> Study:
    fields = {"seeds": 5, "show": ("top3", "autkc2", "average2", "size95"), **changes}
    return small_study(*LOSSES, regimes=REGIMES, models=["linear"], **fields)


SIZES = {"cross_entropy": 4.0, "ldam": 2.5, "focal": 6.0}


def a_table(study: Study | None = None) -> Table:
    """ldam's sets are smaller than the baseline's everywhere, focal's larger; all accuracies are alike."""
    study = study or a_study()

    def tests(arm: Arm) -> list[dict[str, float | None]]:
        own = [jitter * (1 + LOSSES.index(arm.loss.label)) for jitter in JITTER]
        size = SIZES[arm.loss.label]
        return [dict.fromkeys(study.metrics, 0.7 + more) | {"size95": size + more} for more in own]

    return make_table(study, tests)


def test_sizes_are_reported_in_classes_and_shares_in_percent() -> None:
    text = to_markdown(a_table())
    assert "| ldam | **2.50 ± 0.02** | -1.50 ± 0.01 | △ |" in text
    assert "| focal | 6.00 ± 0.03 | +2.00 ± 0.02 | ▽ |" in text
    assert "70.0 ± 1.0" in text
    sizes = [line for line in to_csv(a_table(), ["size95"]).splitlines() if line.startswith("ldam,r0")]
    metric, mean = sizes[0].split(",")[2:4]
    assert metric == "size95" and float(mean) == pytest.approx(2.5)


def test_a_single_seed_has_no_width_in_any_file() -> None:
    alone = dataclasses.replace(a_table(), cells={("ldam", "r0", "top3"): Cell(estimate([0.7]))})
    assert to_arrow(alone)["half_width"].to_pylist() == [None] and "nan" not in to_csv(alone)


def test_the_answer_knows_that_less_is_better() -> None:
    better, _, worse = answer(a_table(), "size95").partition("Worse: ")
    assert "in r0, ldam by 1.50 ± 0.01 classes" in better and "points" not in better
    assert "in r0, focal by 2.00 ± 0.02 classes" in worse


@pytest.mark.parametrize(("direction", "verdict"), [("below", "confirmed"), ("above", "refuted")])
def test_claims_of_sizes_are_in_classes(direction: str, verdict: str) -> None:
    gap = Contrast.between(OURS, THEIRS, "size95")
    claim = Claim(name="c", text="It is so.", source="me", contrasts=[gap], direction=direction, bound=-1.0)
    table = a_table(a_study(claims=[claim]))
    runs = {f"r0/linear/{row}": Runs(table.confirmations[row, "r0"]) for row in LOSSES}
    ((result,),) = (
        decision.evidence for decision in decisions_of(table.study, [of_runs(gap, runs, (), range(1, 6))])
    )
    assert result.verdict == verdict and result.estimate is not None
    assert result.estimate.mean == pytest.approx(-1.5)


def test_what_mlflow_gets_is_in_classes() -> None:
    table = a_table()
    histories = {
        table.study.arm_id(arm): ArmHistory(
            arm, {}, {(0, s): row for s, row in table.confirmations[arm.loss.label, arm.regime.name].items()}
        )
        for arm in table.study.arms
    }
    content = json.loads(arms_to_json(table, histories))
    note = content[table.study.arm_id(table.study.arms[0])]["note"]
    assert "| size95 | 4.00 | 0.01 | 5 | seeds |" in note and "| average2 | 70.00% |" in note


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=20), st.integers(1, 8))
def test_the_ranks_have_the_area_under_the_curve(positions: list[tuple[int, int]], k: int) -> None:
    greater, tied = (np.array(column) for column in zip(*positions, strict=True))
    ranks = Ranks(greater, tied, greater * 0, greater * 0, "images")
    result = accuracies({1: ranks, 2: ranks}, f"autkc{k}")
    assert result is not None
    expected = np.mean([credit(ranks, j) for j in range(1, k + 1)], axis=0)
    assert result[0][0] == pytest.approx(expected)


def test_whoever_asks_is_recorded_in_one_order() -> None:
    study = a_study(show=("size95", "top1"), measures=("autkc3",))
    assert study.measures == ("autkc3", "size95") == a_study(show=("top1",), measures=study.measures).measures
    assert study.metrics[-4:] == ("size95", "coverage95", "macro_coverage95", "candidates99")
    by_arms = a_study(metric="average2", show=("top1",))
    assert by_arms.measures == ("average2",)
    assert a_study(recipe=Recipe(1, keep=("autkc3",)), show=("top1",)).measures == ("autkc3",)


def test_only_those_who_ask_become_other_arms() -> None:
    plain, asked = a_study(show=("top3",)), a_study()
    arm = plain.arms[0]
    assert plain.arm_id(arm) == digest(
        (plain.seed, plain.topk, plain.targets, (), plain.threads, plain.device, arm)
    )
    assert asked.arm_id(arm) != plain.arm_id(arm)
    part = asked.only("r0/*")
    assert part.measures == asked.measures and part.arm_id(arm) == asked.arm_id(arm)
    assert Study.from_json(asked.to_json()) == asked and asked.smoke().measures == asked.measures


PRINTED = Published(regime="r0", loss="ldam", metric="size95", value=3.0, source="me")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"metric": "size95"}, "metric 'size95'"),
        ({"recipe": Recipe(1, keep=("size99",))}, "metric 'size99'"),
        ({"metric": "nll"}, "metric 'nll'"),
        ({"show": ("size80",)}, "metric 'size80'"),
        ({"show": ("autkc0",)}, "metric 'autkc0'"),
        ({"show": ("coverage95", "size95")}, "metric 'coverage95'"),
        ({"measures": ("top5",)}, "measures .*'top5'"),
        ({"published": [PRINTED]}, "metric 'size95'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(UserError, match=name):
        a_study(**changes)


def test_sets_of_more_classes_than_there_are_are_refused_before_anything_runs() -> None:
    with pytest.raises(UserError, match="the K of average11 must be at most the number of classes"):
        check_study(a_study(show=("average11",)))
