"""What a study trains beyond what was asked for, because ensembles are whole, is told before and after."""

from __future__ import annotations

import pytest
from driven import end_all
from made_studies import searched, small_study
from made_trainings import state_of

from topk_platform import Study
from topk_platform.protocol.search_progress import Ended
from topk_platform.specs import NoPruning, Protocol, Trial


def a_study(trials: int, seeds: int, ensemble: int, searches: int = 1) -> Study:
    protocol = Protocol(ensemble=ensemble, pruner=NoPruning(), searches=searches)
    return small_study(searched(), "ldam", protocol=protocol, trials=trials, seeds=seeds)


def complete(trial: Trial) -> Ended:
    return Ended(trial.number, trial.values, "completed", {1: 0.5})


@pytest.mark.parametrize(
    ("trials", "seeds", "ensemble", "searches", "beyond"),
    [
        (4, 3, 1, 1, 0),
        (
            4,
            3,
            2,
            1,
            0 + 1 + 1,
        ),  # of the search, of its confirmations, of those of the loss that is not searched
        (4, 3, 5, 1, 1 + 2 + 2),
        (5, 5, 5, 1, 0),
        (4, 2, 3, 2, 2 * 1 + 2 * 2 + 2 * 2),  # two searches
        (7, 4, 10, 1, 3 + 6 + 6),
    ],
)
def test_as_many_train_as_was_announced(
    trials: int, seeds: int, ensemble: int, searches: int, beyond: int
) -> None:
    study = a_study(trials, seeds, ensemble, searches)
    progress = state_of(study)
    arms = progress.arms.values()
    total = sum(arm.left + arm.along for arm in arms)
    assert (sum(arm.left for arm in arms), total - study.size) == (study.size, beyond)
    trained = 0
    for trained, _ in enumerate(end_all(progress, complete), start=1):
        assert trained + sum(arm.left + arm.along for arm in arms) == total
    assert trained == total
    assert [arm.along for arm in arms] == [0, 0]
    assert sum(arm.beyond for arm in arms) == beyond
