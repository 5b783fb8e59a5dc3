"""Curves over the epochs, where arms are validated after other epochs."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from made_studies import small_study

from topk_platform import Recipe, Study
from topk_platform.reports.plots import plot
from topk_platform.reports.plots.plot_data import INK, looks
from topk_platform.testing import fake_run


def test_every_arm_is_drawn_at_its_own_epochs(tmp_path: Path) -> None:
    every = {"cross_entropy": 1, "ldam": 3}
    studies = (small_study(loss, recipe=Recipe(6, evaluate_every=n)) for loss, n in every.items())
    study = Study("s", [*chain.from_iterable(study.arms for study in studies)], topk=(1, 3), seeds=3)
    fake_run(study, tmp_path, lambda trial: 0.5 + 0.01 * trial.seed)
    (ax,) = plot(study, "training", store=tmp_path).axes
    drawn = {line.get_label(): [int(x) for x in line.get_xdata()] for line in ax.lines}
    assert drawn == {"cross_entropy": [1, 2, 3, 4, 5, 6], "ldam": [3, 6]}


@given(st.integers(0, 60), st.integers(0, 59))
def test_no_two_losses_of_a_study_have_one_colour(count: int, baseline: int) -> None:
    labels = [f"loss-{number}" for number in range(count)]
    drawn = looks(labels, labels[baseline] if baseline < count else None)
    assert set(drawn) == set(labels) and len({look.colour for look in drawn.values()}) == count
    assert baseline >= count or drawn[labels[baseline]].colour == INK
