"""What Tune's trials become: the study's next trial, a kept record, another try after a fault, or an open trial."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_studies import small_study
from made_trainings import state_of
from ray.tune import TuneError
from ray.tune.callback import Callback, CallbackList
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher

from topk_platform import Float, Loss, NoPruning, Protocol
from topk_platform.protocol import StudyProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.running.dispatcher import PAUSES, Dispatcher
from topk_platform.running.limits import Limits
from topk_platform.running.run_options import RunOptions
from topk_platform.running.tuner import Ending, RecordCallback, StudySearcher
from topk_platform.running.watching import Event
from topk_platform.specs import EpochRecord, Trial, TrialRecord

SEARCHED = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})
TOO_LONG = {"done": True, "fault": "TimeLimitError", "why": "2 h of 1 h"}


@dataclass
class Stage:
    """A dispatcher whose clock a test turns, and what it kept and reported."""

    dispatcher: Dispatcher
    progress: StudyProgress
    kept: list[TrialRecord]
    events: list[Event]
    now: list[float]
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def start(self) -> str:
        """Start the next trial; return Tune's name for it, or nothing where none may start."""
        name = f"t{len(self.configs)}"
        config = self.dispatcher.next_config(name)
        if config is None:
            return ""
        self.configs[name] = config
        self.dispatcher.note_start(name)
        return name

    def trials(self, name: str) -> list[Trial]:
        return [Trial.from_json(text) for text in self.configs[name]["order"]["trials"]]

    def report(self, name: str, **message: Any) -> dict[str, Any]:
        message = {"done": False, "epoch": 1, "kept": 0, "patience": 60.0, **message}
        self.dispatcher.receive(name, message)
        return message

    def end(self, name: str) -> None:
        """Let a process bring its trials' records."""
        records = [record_of(trial).to_json() for trial in self.trials(name)]
        self.dispatcher.receive(name, {"done": True, "epoch": 1, "records": records})

    def run_all(self) -> None:
        while name := self.start():
            self.end(name)

    @property
    def open(self) -> list[str]:
        return [trial.fault for trial in self.dispatcher.outcome.open]


def record_of(trial: Trial) -> TrialRecord:
    epoch = EpochRecord(1, 0.5, {"top1": 0.5, "top3": 0.5}, 1.0, 0.1)
    return TrialRecord(trial, "completed", epochs=(epoch,))


@pytest.fixture
def stage() -> Callable[..., Stage]:
    def make(
        arms: int = 1, protocol: Protocol | None = None, keep: Any = None, limits: Any = None, **sizes: int
    ) -> Stage:
        how = protocol or Protocol(pruner=NoPruning())
        regimes = [f"r{number}" for number in range(arms)]
        asked = {"trials": 2, "seeds": 1, **sizes}
        progress = state_of(small_study(SEARCHED, regimes=regimes, protocol=how, **asked))
        kept, events, now = list[TrialRecord](), list[Event](), [0.0]
        limits = Limits(limits, clock=lambda: now[0])
        order = {"start_limit": 1800.0}
        dispatcher = Dispatcher(progress, keep or kept.append, events.append, order, limits)
        return Stage(dispatcher, progress, kept, events, now)

    return make


def test_what_cannot_be_finished_stays_open_and_the_rest_goes_on(stage: Callable[..., Stage]) -> None:
    result = stage(arms=3)
    first = result.start()
    (trial,) = result.trials(first)
    result.dispatcher.receive(first, dict(TOO_LONG))
    result.run_all()
    assert {record.trial.arm_id for record in result.kept} == set(result.progress.arms) - {trial.arm_id}
    assert len(result.kept) == result.dispatcher.outcome.ran == 2 * (2 + 1)
    assert result.dispatcher.done and result.open == ["time limit: 2 h of 1 h"]


def test_tune_tries_again_after_growing_pauses_and_then_the_trial_stays_open(
    stage: Callable[..., Stage],
) -> None:
    result = stage()
    name = result.start()
    tries = range(len(PAUSES) + 1)  # a machine that is taken away with notice does not count
    pauses = [result.dispatcher.restart(name, number, "the node died") for number in tries]
    assert tuple(pauses) == (PAUSES[0], *PAUSES) and not result.start()
    result.dispatcher.give_up(name, len(PAUSES) + 1, "the node died")
    (left,) = result.dispatcher.outcome.open
    assert (left.key, left.arm) == (result.trials(name)[0].key, "r0/mlp/smooth_topk_svm")
    assert result.open == ["process lost: the node died"] and result.kept == []
    assert result.progress.left == 2 + 1 and result.progress.stuck and result.progress.retries == len(tries)
    assert result.dispatcher.done


def test_a_trial_that_gets_further_is_never_given_up(stage: Callable[..., Stage]) -> None:
    result = stage()
    for number in range(1, 50):
        name = result.start()
        result.report(name, kept=10 * number)
        result.dispatcher.give_up(name, len(PAUSES) + 1, "preempted")
        assert result.events[-1].kind == "again"
    name = result.start()
    result.report(name, kept=10 * 49)  # no further than before
    result.dispatcher.give_up(name, len(PAUSES) + 1, "preempted")
    assert result.open == ["process lost: preempted"]


def test_a_process_that_dies_between_two_trials_costs_the_next_one_no_try(
    stage: Callable[..., Stage],
) -> None:
    """Tune gives up a trial that was given to such a process."""
    result = stage()
    name = result.start()
    result.dispatcher.give_up(name, 1, "the node died")
    again = result.start()
    assert result.trials(again) == result.trials(name) and result.open == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("topk_platform.errors.UnreachableStoreError: it cannot be read (on node)", "store"),
        ("The actor died unexpectedly.", "process lost"),
    ],
)
def test_a_fault_is_called_by_its_kind(text: str, kind: str, stage: Callable[..., Stage]) -> None:
    result = stage()
    result.dispatcher.restart(result.start(), 1, text)
    assert result.events[-1].why == f"{kind}: {text.partition('Error: ')[2] or text}"


def test_a_process_that_ended_itself_after_a_silence_has_stalled(stage: Callable[..., Stage]) -> None:
    result = stage(arms=2)
    starting, training = result.start(), result.start()
    result.report(training, patience=100.0)
    result.now[0] += 101
    for name in (training, starting):
        result.dispatcher.restart(name, 1, "The actor died.")
    result.dispatcher.note_start(training)
    result.now[0] += 1750
    for name in (training, starting):
        result.dispatcher.restart(name, 2, "The actor died.")
    whys = [event.why for event in result.events if event.kind == "again"]
    assert [why.partition(":")[0] for why in whys] == ["stalled", "process lost", "process lost", "stalled"]
    assert "no progress for 101 s" in whys[0]


def test_a_trials_progress_goes_on_to_those_who_watch(stage: Callable[..., Stage]) -> None:
    at = stage()
    name = at.start()
    message = at.report(name, epoch=2, **{"validation/top3": 0.75})
    assert [event.kind for event in at.events] == ["started", "progress"]
    assert (at.events[1].epoch, at.events[1].value) == (2, 0.75)
    assert message == {"done": False, "epoch": 2, "validation/top3": 0.75}, (
        "Tune keeps what is for nobody else"
    )


def test_why_a_network_is_missing_is_reported_from_the_record(stage: Callable[..., Stage]) -> None:
    result = stage(trials=1)
    result.end(result.start())
    name = result.start()
    (trial,) = result.trials(name)
    record = replace(record_of(trial), missing={"network": "OSError: in the way"})
    message = {"done": True, "records": [record.to_json()]}
    result.dispatcher.receive(name, message)
    assert message == {"done": True}, "Tune would keep the records"
    assert [kept.missing for kept in result.kept] == [{}, {"network": "OSError: in the way"}]
    assert result.dispatcher.outcome.unsaved == {trial.key: "OSError: in the way"}
    assert result.dispatcher.done and result.progress.left == 0


def test_members_of_an_ensemble_that_have_a_record_are_named(stage: Callable[..., Stage]) -> None:
    """Their files stay as they are."""
    result = stage(trials=1, seeds=2, protocol=Protocol(ensemble=2, pruner=NoPruning()))
    result.end(result.start())
    name = result.start()
    assert result.configs[name]["order"]["recorded"] == []
    first, _ = result.trials(name)
    result.progress.end(first, Ended.from_record(record_of(first)))
    result.dispatcher.give_up(name, 1, "the node died")
    again = result.configs[result.start()]["order"]
    assert again["recorded"] == [first.key] and len(again["trials"]) == 2


def test_an_ensemble_is_left_open_whole(stage: Callable[..., Stage]) -> None:
    result = stage(protocol=Protocol(ensemble=2, pruner=NoPruning()), seeds=2)
    result.dispatcher.receive(result.start(), dict(TOO_LONG))
    assert len({left.key for left in result.dispatcher.outcome.open}) == 2
    assert result.dispatcher.done


def test_at_a_limit_of_time_trials_are_cut_off_without_a_fault_and_can_start_again(
    stage: Callable[..., Stage],
) -> None:
    """Those whose processes have not started as well: on a cluster that others fill, they might not start for days."""
    result = stage(arms=2, limits=RunOptions(max_hours=1))
    (trial,) = result.trials(result.start())
    assert result.dispatcher.next_config("its process has not started") is not None
    result.now[0] += 3599
    assert not Ending(result.dispatcher).stop_all() and not result.dispatcher.done
    result.now[0] += 2
    assert Ending(result.dispatcher).stop_all() and result.dispatcher.done
    result.dispatcher.close()
    assert [event.kind for event in result.events[-2:]] == ["cut", "cut"] and not result.open
    assert result.dispatcher.limits.reached == ["max_hours 1"] and result.progress.retries == 0
    assert result.progress.next_trials() == (trial,)  # goes on from its checkpoint, in the next run


def test_tune_waits_while_nothing_can_start_and_ends_when_nothing_is_left(
    stage: Callable[..., Stage],
) -> None:
    result = stage(trials=1)
    searcher, name = StudySearcher(result.dispatcher), result.start()
    assert searcher.suggest("waiting") is None  # the confirmation waits for the search
    result.end(name)
    result.run_all()
    assert searcher.suggest("none") == Searcher.FINISHED


class Tune:
    """Calls a callback as Tune does: by Tune's own list of callbacks, with the arguments that its hooks declare."""

    def __init__(self, stage: Stage) -> None:
        self.callback = RecordCallback(stage.dispatcher)
        self.trial = TuneTrial("worker", stub=True)
        self.trial.config = stage.dispatcher.next_config(self.trial.trial_id)

    def __call__(self, hook: str, **info: Any) -> None:
        info = {"iteration": 1, "trials": [self.trial], "trial": self.trial, **info}
        inspect.signature(getattr(Callback, hook)).bind(self.callback, **info)
        getattr(CallbackList([self.callback]), hook)(**info)

    def fail(self, folder: Path, error: Exception) -> None:
        """Let Tune write an error's traceback to the trial's folder."""
        self.trial.storage = SimpleNamespace(trial_driver_staging_path=str(folder))
        self.trial.handle_error(TuneError("".join(traceback.format_exception(error))))


def test_a_fault_has_the_last_reason_that_tune_wrote_and_the_next_try_its_pause(
    tmp_path: Path, stage: Callable[..., Stage]
) -> None:
    result = stage()
    tune = Tune(result)
    tune("on_trial_start")
    for tries, error in enumerate((OSError("its disk is full"), OSError("its node is gone"))):
        tune.fail(tmp_path, error)
        tune("on_trial_recover")
        assert result.events[-1].why == f"process lost: OSError: {error}"
        assert tune.trial.config["order"]["pause"] == PAUSES[tries]
    tune.trial.run_metadata.num_failures = len(PAUSES)
    tune.fail(tmp_path, OSError("for good"))
    tune("on_trial_error")
    assert result.open == ["process lost: OSError: for good"]


def test_tune_keeps_no_order_of_a_trial_that_has_ended(stage: Callable[..., Stage]) -> None:
    result = stage()
    tune = Tune(result)
    trials = [Trial.from_json(text) for text in tune.trial.config["order"]["trials"]]
    message = {"done": True, "records": [record_of(trial).to_json() for trial in trials]}
    tune("on_trial_result", result=message)
    tune("on_trial_complete")
    assert "order" not in tune.trial.config and tune.trial.config["arm"] == "r0/mlp/smooth_topk_svm"
    assert len(result.kept) == 1
