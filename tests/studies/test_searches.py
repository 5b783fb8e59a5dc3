"""Beside each study with the papers' settings one that searches them: from these settings on, and all losses alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from topk_platform import Arm, Study
from topk_platform.protocol import ArmProgress
from topk_platform.running.preflight.arm_checks import check_study
from topk_studies import STUDIES
from topk_studies.searches import SEARCHES


@pytest.fixture(params=sorted(SEARCHES))
def study(request: pytest.FixtureRequest) -> Study:
    return SEARCHES[request.param]()


def test_all_losses_are_searched_alike(study: Study) -> None:
    """In the same ranges of rate and decay, by the same protocol, for the same K and metric."""
    shared = {(arm.loss.space["learning_rate"], arm.loss.space["weight_decay"]) for arm in study.arms}
    assert len(shared) == 1
    assert len({(arm.protocol.sampler, arm.protocol.pruner, arm.k, arm.metric) for arm in study.arms}) == 1
    assert study.baseline == "cross_entropy"
    wanted = {
        "smooth_topk_svm": {"tau"},
        "noised_topk_hinge": {"epsilon", "samples"},
        "noised_imbalanced_topk_hinge": {"epsilon", "max_margin"},
        "ldam": {"max_margin", "scale"},
        "calibrated_topk_hinge": {"margin"},
        "focal": {"gamma"},
    }
    for arm in study.arms:
        own = set(arm.loss.space) - {"learning_rate", "weight_decay"}
        assert own == wanted.get(arm.loss.name, own)
        assert arm.loss.name not in ("topk_transition", "topk_grouping") or not own
        assert "samples" not in own or None in arm.loss.space["samples"].ends


@pytest.mark.parametrize(
    ("name", "paper", "regimes"),
    [
        ("search_cifar100_noise", "berrada2018_noise", 6),
        ("search_cifar100_noise", "garcin2022_noise", 3),  # 0.1 and 0.3 are not searched
        ("search_imagenet", "berrada2018_imagenet", 5),
        ("search_imagenet", "garcin2022_imagenet", 0),  # its regime has another name
        ("search_plantnet", "garcin2022_plantnet", 1),
    ],
)
def test_a_search_begins_with_the_papers_settings(name: str, paper: str, regimes: int) -> None:
    """The first trial of each arm has the values of the paper's arm in the same regime, with the same network."""
    seen = set()
    for arm in SEARCHES[name]().arms:
        for theirs in papers_arms(paper, arm):
            ours, fixed = arm.setting(arm.loss.first), theirs.setting({})
            assert {n: ours.own[n] for n in fixed.own} == fixed.own
            assert (ours.recipe.learning_rate, ours.recipe.weight_decay) == (
                fixed.recipe.learning_rate,
                fixed.recipe.weight_decay,
            )
            for field in ("epochs", "batch_size"):
                assert getattr(arm.recipe, field) == getattr(theirs.recipe, field)
            assert arm.model == theirs.model
            seen.add(arm.regime.name)
    assert len(seen) == regimes


def papers_arms(paper: str, arm: Arm) -> list[Arm]:
    """The paper's arms of the same loss, K and regime."""
    return [
        theirs
        for theirs in STUDIES[paper]().arms
        if (theirs.regime, theirs.loss.name, theirs.k) == (arm.regime, arm.loss.name, arm.k)
    ]


QUICK = "search_cifar100_noise"  # the others have the same losses on larger stand-ins, seconds each
FITTED = sorted(SEARCHES.keys() - {"search_cifar100_fraction"})  # which has the arms of noise


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == QUICK else pytest.mark.slow) for name in FITTED]
)
@pytest.mark.usefixtures("standins")
def test_they_fit_together_on_small_stand_ins(name: str) -> None:
    """Of each loss and recipe an arm: every end of its space is built, and its first trial."""
    study = SEARCHES[name]()
    kinds = {(arm.loss.label, arm.recipe): arm for arm in study.arms}
    small = replace(study, arms=tuple(kinds.values())).smoke()
    identities = check_study(small)
    assert len(identities) == len(small.arms)
    for arm in small.arms:
        progress = ArmProgress(small, arm, identities[small.arm_id(arm)])
        assert progress.trial(("search", 0, 0)).values == arm.loss.first


def test_they_are_listed_and_described() -> None:
    text = (Path(__file__).parents[2] / "docs" / "results" / "papers.md").read_text()
    for name, make in SEARCHES.items():
        assert STUDIES[name] is make
        assert make().name == name
        assert f"| `{name}` |" in text
