"""What Tune's callback passes on between workers, desk and conductor."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError
from ray.tune import TuneError
from ray.tune.callback import Callback, CallbackList
from ray.tune.experiment import Trial
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from topk_platform.running.driver import hooks
from topk_platform.running.driver.hooks import BoardSearcher, DesertedStopper, Listener
from topk_platform.running.own_ray.lifeline import Lifeline


class Desk:
    """A desk that notes what is done at it."""

    name = "desk"

    def __init__(self) -> None:
        self.put_down: list[Any] = []
        self.killed: list[str] = []
        self.forgotten: list[str] = []

    def put(self, worker: str, config: Any) -> None:
        self.put_down.append((worker, config))

    def kill(self, worker: str) -> None:
        self.killed.append(worker)

    def forget(self, worker: str) -> None:
        self.forgotten.append(worker)


class Conductor:
    """A conductor with these trials to hand out."""

    done = False

    def __init__(self, *trials: str, wait: float | None = None, stalled: tuple[str, ...] = ()) -> None:
        self.trials, self.wait, self.silent = list(trials), wait, list(stalled)
        self.messages: list[Any] = []
        self.lost: list[tuple[str, str]] = []
        self.late: set[str] = set()

    def start(self, worker: str) -> dict[str, Any] | None:
        return {"trials": [self.trials.pop(0)]} if self.trials else None

    follow = start

    def receive(self, worker: str, message: dict[str, Any]) -> None:
        self.messages.append(dict(message))

    def watch(self, worker: str) -> bool:
        return worker not in self.late

    def lose(self, worker: str, reason: str) -> None:
        self.lost.append((worker, reason))

    def stalled(self) -> list[str]:
        silent, self.silent = self.silent, []
        return silent


class Tune:
    """Calls a listener as Tune does: by Tune's own list of callbacks, with the arguments that its hooks declare."""

    def __init__(self, conductor: Conductor) -> None:
        self.desk, self.trial = Desk(), Trial("worker", stub=True)
        self.listener = Listener(conductor, Lifeline(), self.desk)  # type: ignore[arg-type]

    def __call__(self, hook: str, **info: Any) -> None:
        info = {"iteration": 1, "trials": [self.trial], **info}
        inspect.signature(getattr(Callback, hook)).bind(self.listener, **info)
        getattr(CallbackList([self.listener]), hook)(**info)

    def report(self, message: dict[str, Any]) -> None:
        self("on_trial_result", trial=self.trial, result=message)

    def lose(self, folder: Path, error: Exception) -> None:
        """Let Tune write the error's traceback to the trial's folder, and report it."""
        self.trial.storage = SimpleNamespace(trial_driver_staging_path=str(folder))
        self.trial.handle_error(TuneError("".join(traceback.format_exception(error))))
        self("on_trial_error", trial=self.trial)


@pytest.mark.parametrize(
    ("own", "rays"), [(BoardSearcher, Searcher), (Listener, Callback), (DesertedStopper, Stopper)]
)
def test_each_hook_is_one_of_tunes_and_takes_its_arguments(own: type, rays: type) -> None:
    hooks = [name for name, value in vars(own).items() if callable(value) and not name.startswith("_")]
    for name in hooks:
        taken, passed = (inspect.signature(getattr(kind, name)).parameters for kind in (own, rays))
        assert list(taken) == list(passed), name


def test_a_worker_begins_with_a_trial_and_finds_the_desk() -> None:
    searcher = BoardSearcher(Conductor("first"), Desk())  # type: ignore[arg-type]
    assert searcher.suggest("t") == {"trials": ["first"], "desk": "desk", "worker": "t"}
    assert searcher.suggest("u") is None


@pytest.mark.parametrize(("wait", "done"), [(0.5, False), (None, True)])
def test_tune_ends_while_all_that_is_left_waits_and_at_the_end(wait: float | None, done: bool) -> None:
    conductor = Conductor(wait=wait)
    conductor.done = done
    assert BoardSearcher(conductor, Desk()).suggest("t") == BoardSearcher.FINISHED  # type: ignore[arg-type]


def test_a_worker_goes_on_with_what_the_desk_holds() -> None:
    conductor = Conductor("second")
    tune = Tune(conductor)
    messages: list[dict[str, Any]] = [{"ended": False}, {"ended": True}, {"ended": False}, {"ended": True}]
    for message in [*messages, {"done": True}]:
        tune.report(message)
    assert conductor.messages == messages
    worker = tune.trial.trial_id
    assert tune.desk.put_down == [(worker, {"trials": ["second"]}), (worker, None)]


def test_a_workers_tune_trial_ends_after_many_messages_and_another_takes_the_next_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "MANY", 3)
    tune = Tune(Conductor("second", "third"))
    for ended in (True, False, True):
        tune.report({"ended": ended})
    assert [config for _, config in tune.desk.put_down] == [{"trials": ["second"]}, None]
    tune("on_trial_complete", trial=tune.trial)
    tune.report({"ended": True})
    assert tune.desk.put_down[-1][1] == {"trials": ["third"]}
    assert tune.desk.forgotten == [tune.trial.trial_id]


def test_a_worker_that_starts_after_its_trial_went_to_another_is_killed() -> None:
    conductor = Conductor()
    tune = Tune(conductor)
    tune("on_trial_start", trial=tune.trial)
    assert tune.desk.killed == []
    conductor.late.add(tune.trial.trial_id)
    tune("on_trial_start", trial=tune.trial)
    assert tune.desk.killed == [tune.trial.trial_id]


def test_a_process_that_hangs_is_killed_once() -> None:
    tune = Tune(Conductor(stalled=("hanging",)))
    for iteration in range(2):
        tune("on_step_end", iteration=iteration)
    assert tune.desk.killed == ["hanging"]


def test_a_lost_process_is_reported_with_the_exception_that_tune_wrote(tmp_path: Path) -> None:
    conductor = Conductor()
    tune = Tune(conductor)
    tune.lose(tmp_path, OSError("its node is gone"))
    worker = tune.trial.trial_id
    assert conductor.lost == [(worker, "OSError: its node is gone")]
    assert tune.desk.forgotten == [worker]


def test_the_reason_of_a_lost_process_leaves_out_what_ray_guesses(tmp_path: Path) -> None:
    conductor = Conductor()
    dead = "The actor is dead because its worker process has died."
    context = ActorDiedErrorContext(
        actor_id=b"0123456789abcdef",
        class_name="TrialActor",
        error_message=f"{dead} Some common causes include: (1) the process was killed by the OOM killer",
    )
    Tune(conductor).lose(tmp_path, ActorDiedError(context))
    ((_, reason),) = conductor.lost
    assert (
        reason
        == f"ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task. {dead}"
    )


def test_a_lost_process_without_a_file_of_tunes_has_no_reason() -> None:
    conductor = Conductor()
    tune = Tune(conductor)
    tune.trial.storage = SimpleNamespace(trial_driver_staging_path="")
    tune("on_trial_error", trial=tune.trial)
    assert conductor.lost == [(tune.trial.trial_id, "no reason is known")]
