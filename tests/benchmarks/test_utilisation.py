"""The order of arms in simulated studies: how busy the workers are, and how long a study takes on them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from made_studies import small_study
from scripts import loaded

from topk_platform import Float, Loss, NoPruning, Protocol, Random, Recipe, Study
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress, Durations, StudyProgress

BENCHMARK = loaded(Path(__file__).parents[2] / "benchmarks/utilisation.py", "utilisation")
simulated, Simulated = BENCHMARK.simulated, BENCHMARK.Simulated

LOSS = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})


def a_study(arms: int, trials: int, seeds: int, **protocol: int) -> Study:
    how = Protocol(Random(), pruner=NoPruning(), **protocol)  # type: ignore[arg-type]
    parts = {"regimes": [f"r{i}" for i in range(arms)], "recipe": Recipe(4), "protocol": how}
    return small_study(LOSS, trials=trials, seeds=seeds, **parts)


def a_progress(study: Study) -> StudyProgress:
    return StudyProgress(ArmProgress(study, arm, Identity("c", "f")) for arm in study.arms)


@given(
    arms=st.integers(1, 4),
    trials=st.integers(1, 6),
    seeds=st.integers(1, 6),
    workers=st.integers(1, 30),
    width=st.integers(1, 4),
)
def test_it_takes_no_less_than_what_waits_for_one_another_and_no_less_than_a_workers_share(
    arms: int, trials: int, seeds: int, workers: int, width: int
) -> None:
    study = a_study(arms, trials, seeds, width=width)
    progress = a_progress(study)
    result = simulated(progress, lambda trial: 1.0, workers)
    share, longest = arms * (trials + seeds) / workers, -(-trials // width) + 1
    assert progress.left == 0
    # The latter is Graham's bound.
    assert max(share, longest) - 1e-9 <= result.seconds <= share + longest + 1e-9
    assert result.seconds == result.last_start + 1
    assert workers > 1 or result.busy == 1


def test_the_narrow_arm_that_takes_longest_is_begun_first() -> None:
    """Two workers, an arm of ten trials one after another, and twenty short trainings that wait for nothing."""
    searched = a_study(1, 10, 1).arms[0]
    fixed = small_study("ldam", regimes=[f"f{i}" for i in range(11)], recipe=Recipe(4)).arms
    study = Study("s", [*fixed, searched], topk=(1, 3), trials=10, seeds=1)
    result = simulated(a_progress(study), lambda trial: 1.0, workers=2)
    assert result == Simulated(workers=2, seconds=11.0, last_start=10.0, idle=0.0)


def test_what_is_known_to_take_long_goes_first() -> None:
    study = a_study(2, 3, 1)
    short, long = (study.arm_id(arm) for arm in study.arms)
    for known in ({short: 1.0, long: 2.0}, {short: 2.0, long: 1.0}):
        (trial,) = a_progress(study).next_trials(pace=known.__getitem__)
        assert known[trial.arm_id] == 2.0


def test_the_expected_time_of_a_study_is_that_of_a_simulation_where_trainings_take_equally_long() -> None:
    """Up to one training: one that is shared out unevenly at the end."""
    for arms, trials, workers, width in ((1, 6, 1, 1), (4, 5, 2, 1), (2, 8, 30, 2), (5, 3, 4, 1)):
        study = a_study(arms, trials, 3, width=width)
        durations = Durations({study.arm_id(arm): [2.0] for arm in study.arms})
        expected = a_progress(study).seconds(durations, workers)
        took = simulated(a_progress(study), lambda trial: 2.0, workers).seconds
        assert expected <= took + 1e-9 and took <= expected + 2.0
