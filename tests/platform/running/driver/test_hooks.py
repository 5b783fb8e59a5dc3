"""What Tune's callback passes on between workers, desk and conductor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial

from topk_platform.running.driver import hooks
from topk_platform.running.driver.hooks import BoardSearcher, Listener
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


def listening(conductor: Conductor) -> tuple[Listener, Desk, Trial]:
    """The callback, its desk, and a trial of Tune's own class."""
    desk = Desk()
    return Listener(conductor, Lifeline(), desk), desk, Trial("worker", stub=True)  # type: ignore[arg-type]


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
    listener, desk, trial = listening(conductor)
    messages: list[dict[str, Any]] = [{"ended": False}, {"ended": True}, {"ended": False}, {"ended": True}]
    for message in [*messages, {"done": True}]:
        listener.on_trial_result(1, [], trial, message)
    assert conductor.messages == messages
    assert desk.put_down == [(trial.trial_id, {"trials": ["second"]}), (trial.trial_id, None)]


def test_a_workers_tune_trial_ends_after_many_messages_and_leaves_the_next_trial_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "MANY", 3)
    conductor = Conductor("second", "third")
    listener, desk, trial = listening(conductor)
    for ended in (True, False, True):
        listener.on_trial_result(1, [], trial, {"ended": ended})
    assert [config for _, config in desk.put_down] == [{"trials": ["second"]}, None]
    listener.on_trial_complete(1, [], trial)
    listener.on_trial_result(1, [], trial, {"ended": True})
    assert desk.put_down[-1][1] == {"trials": ["third"]}
    assert desk.forgotten == [trial.trial_id]


def test_a_worker_that_starts_when_its_trial_is_anothers_is_killed() -> None:
    conductor = Conductor()
    listener, desk, trial = listening(conductor)
    listener.on_trial_start(1, [], trial)
    assert desk.killed == []
    conductor.late.add(trial.trial_id)
    listener.on_trial_start(1, [], trial)
    assert desk.killed == [trial.trial_id]


def test_a_process_that_hangs_is_killed_once() -> None:
    listener, desk, trial = listening(Conductor(stalled=("hanging",)))
    for iteration in range(2):
        listener.on_step_end(iteration, [trial])
    assert desk.killed == ["hanging"]


def test_a_lost_process_is_reported_with_what_tune_wrote_of_it(tmp_path: Path) -> None:
    conductor = Conductor()
    listener, desk, trial = listening(conductor)
    assert isinstance(type(trial).error_file, property)  # the attribute of Tune's own class that is read
    (tmp_path / "error.txt").write_text("Traceback\nRuntimeError: its node is gone\n")
    listener.on_trial_error(1, [], SimpleNamespace(trial_id="worker", error_file=str(tmp_path / "error.txt")))
    assert conductor.lost == [("worker", "RuntimeError: its node is gone")]
    assert desk.forgotten == ["worker"]


def test_why_a_process_was_lost_is_told_without_rays_guesses(tmp_path: Path) -> None:
    file = tmp_path / "error.txt"
    file.write_text(
        "Traceback\nray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: TrialActor\nThe actor is dead because its worker process has died. Some common causes include: "
        "(1) the process was killed by the OOM killer"
    )
    assert hooks._reason(str(file)) == (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task. "
        "The actor is dead because its worker process has died."
    )
    assert hooks._reason(None) == hooks._reason(str(tmp_path / "none")) == "no reason is known"
