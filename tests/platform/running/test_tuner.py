"""How a run of Tune ends: what stopped it is raised, and a lost Ray is no error."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import OutOfMemoryError
from ray.tune.error import TuneError

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.errors import ChangedError
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress, StudyProgress
from topk_platform.running import tuner as tuning
from topk_platform.running.cluster.lifeline import LostRayError
from topk_platform.running.dispatcher import Dispatcher
from topk_platform.running.run_options import RunOptions
from topk_platform.running.summary import Outcome
from topk_platform.specs import Trial, TrialRecord

Fit = Callable[[Dispatcher], None]


def complete(dispatcher: Dispatcher) -> None:
    config = dispatcher.next_config("completed")
    assert config is not None and config["order"]["time_limit"] == 5400.0
    assert config["order"]["start_limit"] == 900.0
    records = [
        TrialRecord(Trial.from_json(text), "completed").to_json() for text in config["order"]["trials"]
    ]
    dispatcher.receive("completed", {"done": True, "records": records})


def refuse(dispatcher: Dispatcher) -> None:
    dispatcher.next_config("refused")
    dispatcher.receive("refused", {"done": True, "refused": "other code"})


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, StudyProgress]]:
    def run(fit: Fit, keep: Any = None, notify: Any = None) -> tuple[Outcome, StudyProgress]:
        def tuner(_study: Study, dispatcher: Dispatcher, *_: Any) -> Any:
            return Mock(fit=lambda: fit(dispatcher))

        monkeypatch.setattr(tuning, "_tuner", tuner)
        arm = Arm(Regime("r", "digits"), Model("mlp"), Loss("cross_entropy"), 3, Recipe(1))
        study = Study("s", [arm], topk=(1, 3), seeds=1, time_limit=1.5, start_limit=0.25)
        progress = StudyProgress([ArmProgress(study, arm, Identity("c", "f"))])
        nothing = keep or (lambda _record: None), notify or (lambda _event: None)
        order = tuning.order_for(study, str(tmp_path), RunOptions(), 1)
        return tuning.tune_trials(study, Dispatcher(progress, *nothing, order), RunOptions(), 1), progress

    return run


def test_without_ray_nothing_is_open(tune: Callable[..., Any]) -> None:
    def vanish(dispatcher: Dispatcher) -> None:
        dispatcher.next_config("running")
        raise LostRayError("Ray's raylet (process 7) has ended")

    result, progress = tune(vanish)
    assert result == Outcome(lost="Ray's raylet (process 7) has ended")
    assert progress.left == 1 and not progress.stuck


def test_a_machine_that_is_low_on_memory_ends_the_run_in_one_line(tune: Callable[..., Any]) -> None:
    def kill(dispatcher: Dispatcher) -> None:
        dispatcher.next_config("running")
        cause = OutOfMemoryError("3 worker(s) were killed.\nObject store: ...")
        raise RuntimeError(f"Caught unexpected exception: {cause}") from cause

    outcome, progress = tune(kill)
    assert outcome.lost.startswith("3 worker(s) were killed; ") and not outcome.open
    assert progress.left == 1 and not progress.stuck


def test_what_stopped_it_is_raised(tune: Callable[..., Any]) -> None:
    with pytest.raises(ChangedError, match=r"other code\. Ended trials are kept"):
        tune(refuse)
    with pytest.raises(OSError, match="No space left"):
        tune(complete, keep=Mock(side_effect=OSError("No space left")))


def test_an_error_of_those_who_watch_is_raised_and_not_tunes(tune: Callable[..., Any]) -> None:
    """As with ``topk run --json | head``; an error that passes through Tune would come as one of Tune's."""

    def run_on(dispatcher: Dispatcher) -> None:
        try:
            assert dispatcher.next_config("running") is not None
        except BrokenPipeError as error:
            raise TuneError(str(error)) from error
        assert dispatcher.ends

    with pytest.raises(BrokenPipeError):
        tune(run_on, notify=Mock(side_effect=BrokenPipeError))


def test_the_handler_of_interrupts_is_the_users_again(tune: Callable[..., Any]) -> None:
    before = signal.getsignal(signal.SIGINT)
    tune(lambda _dispatcher: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_long_name_of_an_arm_makes_no_folder_that_cannot_be_made() -> None:
    trial = Mock(config={"arm": "/".join(["x" * 90] * 3)}, trial_id="0a1b2c3d")
    name = tuning._folder_of(trial)
    assert "/" not in name and name.endswith("_0a1b2c3d") and len(name) < 255
