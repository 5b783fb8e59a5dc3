"""The protocol that `digits` promises: equal budgets, and one range of what all losses search."""

from __future__ import annotations

from topk_platform import TPE, Float
from topk_studies import STUDIES, digits


def test_every_study_of_the_table_is_called_as_it_says() -> None:
    for name, make in STUDIES.items():
        assert make().name == name
        assert make().description


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
