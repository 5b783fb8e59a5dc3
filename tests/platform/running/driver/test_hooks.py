"""What Tune's callback passes on between workers, desk and conductor."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

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
        self.desk, self.trial = Mock(), Trial("worker", stub=True)
        self.listener = Listener(conductor, Lifeline(), self.desk)  # type: ignore[arg-type]

    def __call__(self, hook: str, **info: Any) -> None:
        info = {"iteration": 1, "trials": [self.trial], **info}
        inspect.signature(getattr(Callback, hook)).bind(self.listener, **info)
        getattr(CallbackList([self.listener]), hook)(**info)

    @property
    def handed_out(self) -> list[Any]:
        """The configurations that were put on the desk."""
        return [call.args[1] for call in self.desk.put.call_args_list]

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
    searcher = BoardSearcher(Conductor("first"), SimpleNamespace(name="desk"))  # type: ignore[arg-type]
    assert searcher.suggest("t") == {"trials": ["first"], "desk": "desk", "worker": "t"}
    assert searcher.suggest("u") is None


@pytest.mark.parametrize(("wait", "done"), [(0.5, False), (None, True)])
def test_tune_ends_while_all_that_is_left_waits_and_at_the_end(wait: float | None, done: bool) -> None:
    conductor = Conductor(wait=wait)
    conductor.done = done
    assert BoardSearcher(conductor, Mock()).suggest("t") == BoardSearcher.FINISHED  # type: ignore[arg-type]


def test_a_worker_goes_on_with_what_the_desk_holds() -> None:
    conductor = Conductor("second")
    tune = Tune(conductor)
    messages: list[dict[str, Any]] = [{"ended": False}, {"ended": True}, {"ended": False}, {"ended": True}]
    for message in [*messages, {"done": True}]:
        tune.report(message)
    assert conductor.messages == messages
    assert tune.handed_out == [{"trials": ["second"]}, None]


def test_a_workers_tune_trial_ends_after_many_messages_and_another_takes_the_next_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "MANY", 3)
    tune = Tune(Conductor("second", "third"))
    for ended in (True, False, True):
        tune.report({"ended": ended})
    assert tune.handed_out == [{"trials": ["second"]}, None]
    tune("on_trial_complete", trial=tune.trial)
    tune.report({"ended": True})
    assert tune.handed_out[-1] == {"trials": ["third"]}
    tune.desk.forget.assert_called_once_with(tune.trial.trial_id)


def test_a_worker_that_starts_after_its_trial_went_to_another_is_killed() -> None:
    conductor = Conductor()
    tune = Tune(conductor)
    tune("on_trial_start", trial=tune.trial)
    tune.desk.kill.assert_not_called()
    conductor.late.add(tune.trial.trial_id)
    tune("on_trial_start", trial=tune.trial)
    tune.desk.kill.assert_called_once_with(tune.trial.trial_id)


def test_a_process_that_hangs_is_killed_once() -> None:
    tune = Tune(Conductor(stalled=("hanging",)))
    for iteration in range(2):
        tune("on_step_end", iteration=iteration)
    tune.desk.kill.assert_called_once_with("hanging")


def test_a_lost_process_is_reported_with_the_exception_that_tune_wrote(tmp_path: Path) -> None:
    conductor = Conductor()
    tune = Tune(conductor)
    tune.lose(tmp_path, OSError("its node is gone"))
    worker = tune.trial.trial_id
    assert conductor.lost == [(worker, "OSError: its node is gone")]
    tune.desk.forget.assert_called_once_with(worker)


def test_the_reason_of_a_lost_process_leaves_out_what_ray_guesses(tmp_path: Path) -> None:
    conductor = Conductor()
    dead = "The actor is dead because its worker process has died."
    why = f"{dead} Some common causes include: (1) the process was killed by the OOM killer"
    context = ActorDiedErrorContext(actor_id=b"0123456789abcdef", error_message=why)
    Tune(conductor).lose(tmp_path, ActorDiedError(context))
    ((_, reason),) = conductor.lost
    assert reason.endswith(dead)


def test_a_lost_process_without_a_file_of_tunes_has_no_reason() -> None:
    conductor = Conductor()
    tune = Tune(conductor)
    tune.trial.storage = SimpleNamespace(trial_driver_staging_path="")
    tune("on_trial_error", trial=tune.trial)
    assert conductor.lost == [(tune.trial.trial_id, "no reason is known")]
