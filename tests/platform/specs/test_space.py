"""Dimensions that are active only where others have certain values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_studies import small_study

from topk_platform import Choice, Float, Int, Loss, Schedule, UserError
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import Dimension, Scalar, active, in_order, reaching

SAMPLES = Choice((None, 1, 10))
EPSILON = Float(0.01, 10, log=True, when={"samples": (1, 10)})


def spaces() -> st.SearchStrategy[dict[str, Dimension]]:
    """Up to six choices of which each may wait for earlier ones, in any order."""

    @st.composite
    def drawn(draw: st.DrawFn) -> dict[str, Dimension]:
        result: dict[str, Dimension] = {}
        for index in range(draw(st.integers(1, 6))):
            parents = (
                draw(st.lists(st.sampled_from(sorted(result)), unique=True, max_size=2)) if result else []
            )
            when = {name: tuple(draw(st.sets(st.sampled_from((0, 1, 2)), min_size=1))) for name in parents}
            result[f"d{index}"] = Choice((0, 1, 2), when)
        names = draw(st.permutations(sorted(result)))
        return {name: result[name] for name in names}

    return drawn()


def slowly_active(space: dict[str, Dimension], values: dict[str, Scalar]) -> dict[str, Scalar]:
    """What is left when inactive dimensions are taken out one by one."""
    left = dict(values)
    while True:
        wrong = [n for n in left if any(left.get(o, "none") not in w for o, w in space[n].when.items())]
        if not wrong:
            return left
        del left[wrong[0]]


@given(spaces())
def test_active_values_are_those_whose_conditions_hold(space: dict[str, Dimension]) -> None:
    order = in_order(space)
    assert sorted(order) == sorted(space)
    assert all(order.index(other) < order.index(name) for name in space for other in space[name].when)
    for options in itertools.islice(itertools.product((0, 1, 2), repeat=len(space)), 0, None, 7):
        values: dict[str, Scalar] = dict(zip(space, options, strict=True))
        assert active(space, values) == slowly_active(space, values)
        assert list(active(space, values)) == [name for name in space if name in active(space, values)]


@given(spaces(), st.integers(0, 2))
def test_values_that_reach_a_dimension_are_whole_and_change_only_what_they_must(
    space: dict[str, Dimension], value: int
) -> None:
    first = active(space, dict.fromkeys(space, 0))
    for name, dimension in space.items():
        result = reaching(space, first, name, value)
        assert result == active(space, {**dict.fromkeys(space, 0), **result})
        if name in result:
            assert result[name] == value
        # Two that it waits for may exclude each other; each alone can always be reached.
        if len(dimension.when) < 2 and all(len(space[o].when) < 2 for o in space):
            assert name in result
        if name in first and first[name] == value:
            assert result == first


def test_the_exact_expectation_is_searched_beside_sample_counts() -> None:
    """Every end of the space is built before anything starts, those that are not active at first as well."""
    for epsilon, message in (
        (EPSILON, None),
        (Float(-1.0, 1.0, when={"samples": (10,)}), r"space holds samples = 10, epsilon = -1.0"),
    ):
        loss = Loss("noised_topk_hinge", {"samples": SAMPLES, "epsilon": epsilon}, {"samples": None})
        study = small_study(loss)
        if message is None:
            check_study(study)
        else:
            with pytest.raises(UserError, match=message):
                check_study(study)


def a_loss(first: dict[str, Scalar] | None = None, **space: Dimension) -> Loss:
    return Loss("l", space, {name: d.ends[0] for name, d in space.items()} if first is None else first)


WAITS = {name: Int(0, 1, when={name: (1,)}) for name in "ab"}


def a_scheduled(name: str, options: tuple[str, ...], tau: Schedule) -> Loss:
    return Loss("l", {name: Choice(options)}, {name: options[0]}, {"tau": tau})


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: a_loss(samples=SAMPLES, epsilon=Float(0, 1, when={"sample": (1,)})), "'sample'"),
        (lambda: a_loss(a=WAITS["b"], b=WAITS["a"], c=Int(0, 1)), "['a', 'b'] form a circle"),
        (lambda: a_loss(a=WAITS["a"]), "['a'] form a circle"),
        (
            lambda: a_loss(samples=SAMPLES, epsilon=Float(0, 1, when={"samples": (1, 5)})),
            "'epsilon' lists [5]",
        ),
        (lambda: a_loss(samples=SAMPLES, epsilon=Float(0, 1, when={"samples": ()})), "'epsilon'"),
        (lambda: a_loss(rate=Float(0, 1), epsilon=Float(0, 1, when={"rate": (0.3, 1)})), "'rate', a Float"),
        (lambda: Float(0, 1, when={"samples": 3}), "Float.when['samples']"),
        (lambda: Float(0, 1, when={"kind": "ab"}), "Float.when['kind']"),
        (
            lambda: a_loss({"samples": None, "epsilon": 0.1}, samples=SAMPLES, epsilon=EPSILON),
            "['samples'], got",
        ),
        (lambda: a_loss({"samples": 1}, samples=SAMPLES, epsilon=EPSILON), "['epsilon', 'samples'], got"),
        (lambda: Schedule("cosine", 1.0), "Schedule.end"),
        (lambda: Schedule("linear", float("nan"), 1.0), "Schedule.start"),
        (lambda: Loss("l", fixed={"tau": Schedule("sine", 1.0, 2.0)}), "'sine'"),
        (lambda: Loss("l", fixed={"tau": Schedule("linear", "tau_start", 2.0)}), "'tau_start'"),
        (lambda: Loss("l", fixed={"learning_rate": Schedule("linear", 1.0, 2.0)}), "Recipe.schedule"),
        (lambda: a_scheduled("s", ("linear", "sine"), Schedule("s", 1.0, 2.0)), "'s' must be a Choice among"),
        (lambda: a_scheduled("e", ("low", "high"), Schedule("linear", 1.0, "e")), "'low' of 'e'"),
    ],
)
def test_what_cannot_be_is_reported_in_one_line(make: Any, named: str) -> None:
    with pytest.raises(UserError) as caught:
        make()
    assert named in str(caught.value) and "\n" not in str(caught.value)
