"""What losses search: the same besides their own parameters, in ranges that hold the shipped choices well inside."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields

import pytest
from shipped import shipped, studies

from topk_platform import Arm, Recipe, Study
from topk_platform.results.table import row_and_column
from topk_platform.results.tuning import edges

SHARED = {field.name for field in fields(Recipe)}


def places(study: Study) -> list[list[Arm]]:
    """The searched arms that a table compares with one another."""
    result = defaultdict(list)
    for arm in study.arms:
        if arm.is_searched:
            result[arm.regime.name, arm.model.label].append(arm)
    return list(result.values())


@pytest.mark.parametrize("name", sorted(name for name, study in studies().items() if places(study)))
def test_besides_their_own_parameters_all_losses_of_a_study_search_the_same(name: str) -> None:
    study = studies()[name]
    for arms in places(study):
        shared = [{n: d for n, d in arm.loss.space.items() if n in SHARED} for arm in arms]
        assert all(space == shared[0] for space in shared) and shared[0]
        own = {arm.loss.label: len(arm.loss.space.keys() - SHARED) for arm in arms}
        assert own[study.baseline or ""] == 1 and max(own.values()) <= 2


@pytest.mark.parametrize("name", sorted(name for name, study in studies().items() if study.searches > 1))
def test_a_study_that_compares_has_five_trials_for_each_dimension_of_a_search(name: str) -> None:
    """But for those that take minutes: no loss is searched too short because it has more dimensions than others."""
    study = studies()[name]
    most = max(len(arm.loss.space) for arm in study.arms)
    assert name.endswith("_quick") or study.trials // study.searches >= 5 * most


def test_ranges_hold_the_shipped_choices_of_letters_well_inside() -> None:
    """An end is a twentieth of a range, so an indifferent value is at one of two ends in a tenth of the choices.

    What was chosen may not be there more often, but for three standard errors.
    """
    at_ends, values = 0, 0
    for result in (one for one in shipped() if one.study.name in ("letters", "letters_map")):
        for arm in result.study.arms:
            column = row_and_column(result.study, result.table.across, arm)
            for choice in result.table.choices.get(column, ()):
                values += len(choice.values)
                at_ends += len(list(edges(arm.loss, choice.values)))
    assert values > 800 and at_ends / values < 0.1 + 3 * (0.1 * 0.9 / values) ** 0.5
