"""What Tune remembers of trials that have ended, and what it keeps of a worker's message."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from topk_platform.running.driver import hooks
from topk_platform.running.driver.hooks import Listener, ShortMemory
from topk_platform.running.own_ray.lifeline import Lifeline


@dataclass(eq=False)
class Remembered:
    """A trial as Tune has it."""

    trial_id: str
    folder: Path
    ended: bool = True
    temporary_state: Any = field(default_factory=lambda: SimpleNamespace(ray_actor=None))

    @property
    def local_path(self) -> str:
        return str(self.folder / self.trial_id)

    @property
    def path(self) -> str:
        return str(self.folder / "kept" / self.trial_id)

    def is_finished(self) -> bool:
        return self.ended


def test_ended_trials_are_forgotten_once_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_MANY", 3)
    running = Remembered("running", tmp_path, ended=False)
    controller = SimpleNamespace(
        _trials=[running],
        _live_trials={running},
        _stopped_trials=set(),
        _failed_trials=set(),
        _trials_to_cache={running},
        _trial_metadata={"running": "{}"},
    )
    trials, memory = controller._trials, ShortMemory()
    for number in range(20):
        trial = Remembered(f"t{number}", tmp_path)
        for folder in (trial.local_path, trial.path):
            Path(folder).mkdir(parents=True)
        trials.append(trial)
        (controller._failed_trials if number % 2 else controller._stopped_trials).add(trial)
        controller._live_trials.add(trial)  # where Tune leaves those that failed
        controller._trial_metadata[trial.trial_id] = "{}"
        memory.on_trial_complete(controller, trial, {})
        assert len(controller._trials) <= 3
    assert controller._trials is trials and running in trials
    kept = {trial.trial_id for trial in trials}
    assert {trial.trial_id for trial in controller._live_trials} == controller._trial_metadata.keys() == kept
    assert controller._trials_to_cache == {running}
    assert len(controller._stopped_trials | controller._failed_trials) < 3
    assert {path.name for path in tmp_path.iterdir()} == kept - {"running"} | {"kept"}
    assert {path.name for path in (tmp_path / "kept").iterdir()} == kept - {"running"}


def test_the_messages_of_running_trials_are_forgotten(tmp_path: Path) -> None:
    forgotten: list[str] = []
    trial = Remembered("running", tmp_path, ended=False)
    controller = SimpleNamespace(
        _actor_manager=SimpleNamespace(clear_actor_task_futures=forgotten.append),
        _trial_to_actor={trial: "its actor"},
    )
    assert ShortMemory().on_trial_result(controller, trial, {"ended": False}) == "CONTINUE"
    assert forgotten == ["its actor"]


def test_a_process_goes_on_with_what_follows(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    assigned: list[dict[str, Any]] = []
    following = iter([{"trials": ["second"]}, None])
    conductor = SimpleNamespace(
        hear=lambda _id, message: heard.append(message), follow=lambda _id: next(following)
    )
    trial = Remembered("t", tmp_path, ended=False)
    trial.temporary_state.ray_actor = SimpleNamespace(assign=SimpleNamespace(remote=assigned.append))
    messages: list[dict[str, Any]] = [{"ended": False}, {"ended": True}, {"ended": False}, {"ended": True}]
    for message in [*messages, {"done": True}]:
        Listener(conductor, Lifeline()).on_trial_result(1, [], trial, message)  # type: ignore[arg-type]
    assert heard == messages
    assert assigned == [{"trials": ["second"]}]


def test_a_process_that_hangs_is_killed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[str] = []
    monkeypatch.setattr(hooks.ray, "kill", killed.append)
    hanging, other = (Remembered(name, tmp_path, ended=False) for name in ("hanging", "other"))
    hanging.temporary_state.ray_actor = "its process"
    other.temporary_state.ray_actor = "another"
    found = iter([["hanging"], []])
    listener = Listener(SimpleNamespace(stalled=lambda: next(found)), Lifeline())  # type: ignore[arg-type]
    for iteration in range(2):
        listener.on_step_end(iteration, [other, hanging])
    assert killed == ["its process"]


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
