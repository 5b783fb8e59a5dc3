"""The protocol that `digits` promises: equal budgets, and one range of what all losses search."""

from __future__ import annotations

from collections import defaultdict

from topk_platform import TPE, Float
from topk_studies import STUDIES, digits


def test_every_study_of_the_table_is_called_as_it_says() -> None:
    for name, make in STUDIES.items():
        assert make().name == name
        assert make().description


def test_regimes_and_losses_are_those_of_the_question() -> None:
    arms = defaultdict(set)
    for arm in digits().arms:
        arms[arm.regime.name].add(arm.loss.label)
    common = {"cross_entropy", "smooth_topk_svm", "calibrated_topk_hinge", "noised_topk_hinge"}
    common |= {"generalized_cross_entropy", "soft_topk_loss", "autkc"}
    uneven = {"ldam", "noised_imbalanced_topk_hinge"}
    assert arms == {
        "balanced": common,
        "noise-0.4": common,
        "noise-0.8": common,
        "long-tail": common | uneven,
    }
    assert {arm.loss.label for arm in digits().arms if arm.loss.head == "cosine"} == uneven


def test_the_budget_is_the_same_for_all() -> None:
    study = digits()
    assert (study.trials, study.seeds, study.topk) == (16, 5, (1, 2, 3, 5))
    rates = {arm.loss.space["learning_rate"] for arm in study.arms}
    assert len(rates) == 1
    assert isinstance(rates.pop(), Float)
    for arm in study.arms:
        assert (arm.k, arm.protocol.sampler, arm.protocol.width, arm.metric) == (3, TPE(random=5), 1, "top3")
        baseline = next(a for a in study.arms if a.regime == arm.regime and a.loss.label == study.baseline)
        assert baseline.recipe == arm.recipe


def test_each_loss_searches_its_own_parameters() -> None:
    searched = {arm.loss.label: set(arm.loss.space) for arm in digits().arms}
    assert "tau" in searched["smooth_topk_svm"]
    assert {"epsilon", "samples"} <= searched["noised_topk_hinge"]
    assert {"max_margin", "scale"} <= searched["ldam"]
    assert {"epsilon", "max_margin"} <= searched["noised_imbalanced_topk_hinge"]
