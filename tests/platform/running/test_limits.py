"""The limits of a run: no trial starts that would end beyond them, and trials that still run then are cut off."""

from __future__ import annotations

import math
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform import (
    TPE,
    Arm,
    Float,
    Loss,
    Model,
    NoPruning,
    Protocol,
    Recipe,
    Regime,
    Study,
    UserError,
    run,
)
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress, Durations, StudyProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.running.dispatcher import PAUSES, Dispatcher
from topk_platform.running.limits import Limits
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import EpochRecord, Trial, TrialRecord

SEARCHED = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})


def a_study(arms: int = 2, trials: int = 4, seeds: int = 3, **protocol: Any) -> Study:
    how = Protocol(TPE(random=50), pruner=NoPruning(), **protocol)
    made = [
        Arm(Regime(f"r{i}", "digits"), Model("mlp"), SEARCHED, 3, Recipe(1), protocol=how)
        for i in range(arms)
    ]
    return Study("s", made, topk=(1, 3), trials=trials, seeds=seeds)


def record_of(trial: Trial, seconds: float) -> TrialRecord:
    epoch = EpochRecord(1, 0.5, {"top1": 0.5, "top3": 0.5}, 1.0, 0.1)
    return TrialRecord(trial, "completed", epochs=(epoch,), train_seconds=seconds)


class Driver:
    """A study of which each trial takes so many seconds, by a clock that moves from one ending to the next."""

    def __init__(
        self, study: Study, limits: RunOptions, workers: int, seconds: float, gpus: float = 1.0
    ) -> None:
        self.now, self.workers, self.seconds = 0.0, workers, seconds
        self.kept: list[TrialRecord] = []
        self.names = count()
        self.progress = StudyProgress(ArmProgress(study, arm, Identity("c", "f")) for arm in study.arms)
        self.limits = Limits(limits, gpus, clock=lambda: self.now)
        self.dispatcher = Dispatcher(
            self.progress, self.kept.append, lambda _event: None, {"start_limit": 1800.0}, self.limits
        )

    def go_on(self) -> None:
        ends: dict[str, float] = {}
        while True:
            while len(ends) < self.workers and not self.dispatcher.done:
                name = f"t{next(self.names)}"
                if self.dispatcher.next_config(name) is None:
                    break
                self.dispatcher.note_start(name)
                ends[name] = self.now + self.seconds
            if not ends:
                break
            name = min(ends, key=ends.__getitem__)
            self.now = ends.pop(name)
            self.end(name)
        assert self.dispatcher.done

    def end(self, name: str) -> None:
        """Let a worker bring its trials' records."""
        trials = self.limits.running[name].trials
        records = [record_of(trial, self.seconds).to_json() for trial in trials]
        self.dispatcher.receive(name, {"done": True, "records": records})


@given(
    workers=st.integers(1, 5),
    seconds=st.integers(60, 4000),
    limit=st.floats(0.05, 9),
    ensemble=st.integers(1, 2),
)
def test_a_run_ends_in_time_and_leaves_no_time_for_another_trial(
    workers: int, seconds: int, limit: float, ensemble: int
) -> None:
    driver = Driver(a_study(ensemble=ensemble), RunOptions(max_hours=limit), workers, seconds)
    driver.limits.durations.guess(dict.fromkeys(driver.progress.arms, float(seconds)))
    driver.go_on()
    assert driver.now <= 3600 * limit
    assert (driver.progress.left > 0) == driver.progress.held(
        lambda *start: not driver.limits.against(*start)
    )
    assert driver.progress.left == 0 or driver.now + seconds > 3600 * limit


@given(
    workers=st.integers(1, 5),
    seconds=st.integers(60, 4000),
    limit=st.floats(0.05, 9),
    gpus=st.sampled_from([1.0, 0.25]),
)
def test_gpu_hours_are_summed_over_all_workers(workers: int, seconds: int, limit: float, gpus: float) -> None:
    driver = Driver(a_study(), RunOptions(max_gpu_hours=limit), workers, seconds, gpus)
    driver.limits.durations = Durations({arm: [float(seconds)] for arm in driver.progress.arms})
    driver.go_on()
    spent = len(driver.kept) * seconds * gpus
    assert spent <= 3600 * limit + 1e-6
    assert driver.progress.left == 0 or spent + seconds * gpus > 3600 * limit - 1e-6


def test_a_worker_takes_no_gpu_while_it_waits_for_its_start() -> None:
    driver = Driver(a_study(), RunOptions(max_gpu_hours=1), 1, 60)
    assert driver.dispatcher.next_config("t") is not None
    driver.now = 24 * 3600.0
    assert not driver.dispatcher.done
    driver.dispatcher.note_start("t")
    driver.now += 1800.0
    driver.dispatcher.restart("t", 1, "the node died")
    driver.now += 24 * 3600.0
    assert not driver.dispatcher.done
    driver.dispatcher.note_start("t")
    driver.now += 1799.0
    assert not driver.dispatcher.done
    driver.limits.durations.guess(dict.fromkeys(driver.progress.arms, 60.0))
    assert driver.dispatcher.next_config("another") is None, "the first takes longer than was expected"
    driver.now += 2.0
    assert driver.dispatcher.done and driver.limits.reached == ["max_gpu_hours 1"]


@given(workers=st.integers(1, 5), most=st.integers(2, 20), ensemble=st.integers(1, 2))
def test_no_more_trials_start_than_may(workers: int, most: int, ensemble: int) -> None:
    driver = Driver(a_study(ensemble=ensemble), RunOptions(max_trials=most), workers, 60)
    driver.go_on()
    assert len(driver.kept) <= most
    assert driver.progress.left == 0 or len(driver.kept) > most - ensemble


def test_a_trial_that_is_tried_again_counts_once() -> None:
    driver = Driver(a_study(arms=1), RunOptions(max_trials=1), 1, 60)
    assert driver.dispatcher.next_config("a") is not None
    driver.dispatcher.restart("a", 1, "the node died")
    driver.dispatcher.give_up("a", 2, "the node died")
    assert driver.dispatcher.next_config("b") is not None
    driver.end("b")
    assert driver.dispatcher.next_config("c") is None and driver.dispatcher.done


def test_a_trial_that_stays_open_has_started() -> None:
    driver = Driver(a_study(arms=2), RunOptions(max_trials=1), 1, 60)
    assert driver.dispatcher.next_config("a") is not None
    assert driver.dispatcher.next_config("other") is None and not driver.dispatcher.done
    driver.dispatcher.give_up("a", len(PAUSES) + 1, "the node died")
    assert len(driver.dispatcher.outcome.open) == 1
    assert driver.dispatcher.next_config("other") is None and driver.dispatcher.done
    driver.dispatcher.close()
    assert driver.dispatcher.outcome.partial == "max_trials 1"


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        *(("max_hours", 0), ("max_hours", math.nan), ("max_gpu_hours", -1)),
        ("max_gpu_hours", 1),  # of a study on the CPU
        ("max_trials", 1),  # where two train together
    ],
)
def test_limits_that_let_nothing_start_are_refused(name: str, limit: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{name} must"):
        run(a_study(ensemble=2), store=tmp_path, **{name: limit})
    assert not list(tmp_path.iterdir())


@given(
    width=st.integers(1, 6), ensemble=st.integers(1, 3), searches=st.integers(1, 3), places=st.integers(1, 4)
)
def test_no_more_workers_can_be_busy_than_a_plan_shows(
    width: int, ensemble: int, searches: int, places: int
) -> None:
    """By starting all that can start, then ending the oldest; a single search can feed them all."""
    size = searches * ensemble * places
    study = a_study(1, size, size, width=width, ensemble=ensemble, searches=searches)
    progress = StudyProgress([ArmProgress(study, study.arms[0], Identity("c", "f"))])
    (arm,) = progress.arms.values()
    shown = {"search": arm.search_workers, "confirm": arm.confirm_workers}
    most, running = dict.fromkeys(shown, 0), []
    while progress.left:
        while trials := progress.next_trials():
            running.append(trials)
        for phase in most:
            most[phase] = max(most[phase], sum(trials[0].phase == phase for trials in running))
        for trial in running.pop(0):
            progress.end(trial, Ended(trial.number, trial.values, "completed", {1: 0.5}))
    assert all(most[phase] <= shown[phase] for phase in shown)
    assert searches > 1 or most == shown
