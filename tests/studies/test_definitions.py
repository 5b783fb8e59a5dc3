"""What all studies promise: budgets, losses that are searched alike in ranges that are wide enough, parts that fit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, replace

import pytest
from shipped import shipped, studies

from topk_platform import Arm, Recipe, Study
from topk_platform.protocol import ArmProgress
from topk_platform.results.table import is_at_end, row_and_column
from topk_platform.running.preflight.arm_checks import check_study

SHARED = {field.name for field in fields(Recipe)}

# Searches, then trials and seeds of each of them; the other studies search nothing.
_BY_BUDGET = {
    (1, 16, 5): "digits",
    (5, 8, 4): "letters_quick",
    (3, 3, 1): "kanji_quick",
    (5, 20, 2): "letters letters_map letters_questions kanji kanji_map kanji_classes "
    "photos_noise photos_map photos_pixels",
    (3, 20, 3): "photos_fraction photos_tail",
    (10, 15, 5): "letters_again",
    (10, 15, 2): "kanji_again photos_again letters_again_convnet",
    (1, 20, 3): "search_imagenet",
    (1, 20, 4): "search_cifar100_noise search_cifar100_fraction search_cifar100_tail "
    "search_imagenet_lt search_plantnet",
    (1, 20, 5): "search_cifar100_augmented",
}
BUDGETS = {name: budget for budget, names in _BY_BUDGET.items() for name in names.split()}


def columns(study: Study) -> list[list[Arm]]:
    """The searched arms that a table compares with one another."""
    result = defaultdict(list)
    for arm in study.arms:
        if arm.is_searched:
            result[arm.regime.name, arm.model.label].append(arm)
    return list(result.values())


def test_every_study_is_called_and_described_as_it_says_and_has_its_budget() -> None:
    assert all(study.name == name and study.description for name, study in studies().items())
    searching = {name: study for name, study in studies().items() if columns(study)}
    budgets = {n: (s.searches, s.trials // s.searches, s.seeds // s.searches) for n, s in searching.items()}
    assert budgets == BUDGETS
    for name, study in searching.items():
        most = max(len(arm.loss.space) for arm in study.arms)
        # No loss is searched too short because it has more dimensions than others.
        assert study.searches == 1 or name.endswith("_quick") or budgets[name][1] >= 5 * most


@pytest.mark.parametrize("name", BUDGETS)
def test_all_losses_of_a_column_are_searched_alike_but_for_their_own_parameters(name: str) -> None:
    study = studies()[name]
    for arms in columns(study):
        (baseline,) = [arm for arm in arms if arm.loss.label == study.baseline]
        shared = [{n: d for n, d in arm.loss.space.items() if n in SHARED} for arm in arms]
        assert all(space == shared[0] for space in shared) and shared[0]
        own = {arm.loss.label: len(arm.loss.space.keys() - SHARED) for arm in arms}
        assert own[study.baseline or ""] == 1 and max(own.values()) <= 2
        for arm in arms:
            assert (arm.k, arm.metric) == (baseline.k, baseline.metric)
            if arm.recipe.average is None:  # a network with averaged weights trains alone
                assert (arm.recipe, arm.protocol) == (baseline.recipe, baseline.protocol)


QUICK = ("digits", "letters", "ring")
FITTED = {name for name in studies() if not name.startswith("photos")} - {"search_cifar100_fraction"}
"""Photographs' backbones take a while, and the arms on parts of CIFAR-100 are those on noise."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n.startswith(QUICK) else pytest.mark.slow) for n in sorted(FITTED)],
)
@pytest.mark.usefixtures("standins")
def test_losses_models_and_recipes_fit_together_on_a_small_part(name: str) -> None:
    """Every end of each space is built; a search begins with its first values."""
    study = studies()[name]
    # Seconds each on stand-ins of photographs.
    kinds = {(arm.loss.label, arm.recipe): arm for arm in study.arms}
    small = (replace(study, arms=tuple(kinds.values())) if name.startswith("search_") else study).smoke()
    identities = check_study(small)
    assert len(identities) == len(small.arms) and not small.published
    for arm in (arm for arm in small.arms if arm.is_searched):
        progress = ArmProgress(small, arm, identities[small.arm_id(arm)])
        assert progress.trial(("search", 0, 0)).values == arm.loss.first


def test_ranges_hold_the_shipped_choices_of_letters_well_inside() -> None:
    """An end is a twentieth of a range, so an indifferent value is at one of two ends in a tenth of the choices.

    What was chosen may not be there more often, but for three standard errors.
    """
    at_ends, values = 0, 0
    for result in (findings for findings in shipped() if findings.study.name in ("letters", "letters_map")):
        for arm in result.study.arms:
            column = row_and_column(result.study, result.table.across, arm)
            for choice in result.table.choices.get(column, ()):
                values += len(choice.values)
                at_ends += sum(is_at_end(arm.loss.space[name], v) for name, v in choice.values.items())
    assert values > 800 and at_ends / values < 0.1 + 3 * (0.1 * 0.9 / values) ** 0.5
