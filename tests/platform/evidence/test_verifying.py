"""A trial that was trained again beside its record: every change counts, and the line says what differs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from topk_platform.evidence.verifying import Checked, replayed

Differences = dict[str, tuple[Any, Any]]


def checked(differences: Differences, tolerance: float = 0.005) -> Checked:
    recorded = SimpleNamespace(row={"key": "k"}, trial=SimpleNamespace(code_version="v"))
    again = SimpleNamespace(
        recorded=recorded,
        differences=differences,
        differing=tuple(differences),
        code_version="v",
        environment="",
    )
    return replayed(again, tolerance)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        (0.5, math.nan),
        (math.nan, 0.5),
        (math.inf, 0.5),
        (0.5, math.inf),
        (-math.inf, math.inf),
        (None, 0.5),
        (0.5, None),
    ],
)
def test_a_number_that_is_not_finite_is_within_no_tolerance(
    change: tuple[float | None, float | None],
) -> None:
    """A comparison with NaN is false, so whether NaN was the largest depended on the order."""
    small: Differences = {"a": (0.5, 0.501), "z": (0.5, 0.502)}
    for differences in ({"test.nll": change, **small}, {**small, "test.nll": change}):
        result = checked(differences)
        assert result.outcome == "differs"
        assert result.why == "test.nll: difference inf, the largest of 3 differences"


def test_the_largest_difference_decides() -> None:
    differences = {"a": (0.5, 0.501), "b": (100.0, 100.2), "ranks": (None, None)}
    result = checked(differences)
    assert result == Checked(
        "k",
        "within tolerance",
        "b: difference 0.002, the largest of 2 differences; the ranks of test images differ",
    )
    assert checked(differences, 0.0019).outcome == checked(differences, -1.0).outcome == "differs"


def test_where_ranks_alone_differ_the_line_says_so() -> None:
    result = checked({"ranks": (None, None)})
    assert result == Checked("k", "within tolerance", "the ranks of test images differ")
    assert checked({"ranks": (None, None)}, -1.0).outcome == "differs"  # as where every bit must be equal


@pytest.mark.parametrize(("reason", "now"), [("", "completed"), ("nan", "completed: nan")])
def test_another_status_is_said_with_its_reason_if_there_is_one(reason: str, now: str) -> None:
    recorded = SimpleNamespace(row={"key": "k", "status": "pruned"}, trial=SimpleNamespace(code_version="v"))
    again = SimpleNamespace(
        recorded=recorded,
        record=SimpleNamespace(status="completed", reason=reason),
        differing=("status",),
        code_version="v",
        environment="",
    )
    result = replayed(again, 0.005)  # type: ignore[arg-type]
    assert result == Checked("k", "differs", f"its status was pruned, now {now}")
