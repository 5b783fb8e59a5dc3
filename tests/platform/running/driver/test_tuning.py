"""Tune is started anew where all that is left waits to be tried again; what stopped a study is raised in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import OutOfMemoryError
from ray.tune.error import TuneError

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.errors import ChangedError
from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard, Board
from topk_platform.records import Store
from topk_platform.running.driver import tuning
from topk_platform.running.driver.conductor import Conductor
from topk_platform.running.driver.hooks import DesertedStopper
from topk_platform.running.driver.launching import Cluster, Launch
from topk_platform.running.driver.retries import Faults
from topk_platform.running.own_ray.lifeline import Lifeline, LostRayError
from topk_platform.specs import Trial, TrialRecord

Fit = Callable[[Conductor], None]


@dataclass
class Tuner:
    """What Tune would do with a conductor, once for each time that it is started."""

    fits: list[Fit]
    stopper: DesertedStopper

    def fit(self) -> None:
        self.fits.pop(0)(self.stopper._conductor)
        self.stopper.stop_all()


def lose(conductor: Conductor) -> None:
    assert conductor.start("lost") is not None
    conductor.lose("lost", "the node died")


def desert(conductor: Conductor) -> None:
    """Let a worker that was asked for not start within the limit, though there is room for it."""
    assert conductor.start("deserted") is not None
    conductor.starts.room = lambda waiting: waiting
    now = conductor.clock()
    conductor.clock = lambda: now
    while not conductor.deserted:
        now += 9
        assert conductor.stalled() == []
    assert not conductor.watch("deserted")  # Tune starts it after all


def complete(conductor: Conductor) -> None:
    config = conductor.start("completed")
    assert config is not None and config["time_limit"] == 5400.0
    records = [TrialRecord(Trial.from_json(text), "completed").to_json() for text in config["trials"]]
    conductor.receive("completed", {"ended": True, "records": records})


def refuse(conductor: Conductor) -> None:
    conductor.start("refused")
    conductor.receive("refused", {"ended": True, "refused": "other code"})


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Faults, list[float], Board]]:
    def run(
        *fits: Fit, keep: Any = None, notify: Any = None, sleep: Any = None
    ) -> tuple[Faults, list[float], Board]:
        left, slept = list(fits), []
        monkeypatch.setattr(tuning, "_tuner", lambda *_, run_config: Tuner(left, run_config.stop))
        monkeypatch.setattr(tuning, "Desk", Mock)
        monkeypatch.setattr(tuning, "PAUSES", (0.0, 0.0))
        line = Lifeline()
        monkeypatch.setattr(line, "sleep", sleep or slept.append)
        arm = Arm(Regime("r", "digits"), Model("mlp"), Loss("cross_entropy"), 3, Recipe(1))
        study = Study("s", [arm], topk=(1, 3), seeds=1, time_limit=1.5, start_limit=0.25)
        board = Board([ArmBoard(study, arm, Identity("c", "f"))])
        nothing = keep or (lambda _record: None), notify or (lambda _event: None)
        launch = Launch(Store.open(tmp_path))
        result = tuning.tune_trials(study, board, *nothing, Cluster(1, line=line), launch)
        assert not left
        return result, slept, board

    return run


def test_it_waits_for_what_is_to_be_tried_again(tune: Callable[..., Any]) -> None:
    result, slept, board = tune(lose, lose, complete)
    assert result == Faults() and len(slept) == 2 and board.left == 0


def test_it_ends_with_what_is_left_open(tune: Callable[..., Any]) -> None:
    result, slept, board = tune(lose, lose, lose)
    assert len(result.open) == 1 and len(slept) == 2 and board.stuck


def test_it_is_started_anew_where_workers_do_not_start(tune: Callable[..., Any]) -> None:
    result, slept, board = tune(desert, desert, complete)
    assert result == Faults() and len(slept) == 2 and board.left == 0


def test_a_trial_whose_process_never_starts_stays_open(tune: Callable[..., Any]) -> None:
    result, slept, board = tune(desert, desert, desert)
    (left,) = result.open
    assert left.fault.startswith("not started: ") and "0.25 h" in left.fault
    assert len(slept) == 2 and board.stuck


def test_an_interrupt_while_it_waits_is_the_callers(
    tune: Callable[..., Any],
) -> None:
    with pytest.raises(KeyboardInterrupt):
        tune(lose, sleep=Mock(side_effect=KeyboardInterrupt))


def test_without_ray_nothing_is_tried_again_and_nothing_is_open(tune: Callable[..., Any]) -> None:
    def vanish(conductor: Conductor) -> None:
        conductor.start("running")
        raise LostRayError("Ray's raylet (process 7) has ended")

    result, slept, board = tune(vanish)
    assert result == Faults(ended="Ray's raylet (process 7) has ended")
    assert board.left == 1 and not board.stuck and slept == []


def test_a_machine_that_is_low_on_memory_ends_the_run_in_one_line(tune: Callable[..., Any]) -> None:
    def kill(conductor: Conductor) -> None:
        conductor.start("running")
        cause = OutOfMemoryError("3 worker(s) were killed.\nObject store: ...")
        raise RuntimeError(f"Caught unexpected exception: {cause}") from cause

    faults, slept, board = tune(kill)
    assert faults.ended.startswith("3 worker(s) were killed; ") and not faults.open
    assert board.left == 1 and not board.stuck and slept == []


def test_what_stopped_it_is_raised(tune: Callable[..., Any]) -> None:
    with pytest.raises(ChangedError, match=r"other code\. Ended trials are kept"):
        tune(refuse)
    with pytest.raises(OSError, match="No space left"):
        tune(complete, keep=Mock(side_effect=OSError("No space left")))


def test_without_a_reader_of_its_events_a_run_cuts_its_trials_off_and_raises_the_readers_error(
    tune: Callable[..., Any],
) -> None:
    """As with ``topk run --json | head``; an error that passes through Tune would come as one of Tune's."""

    def run_on(conductor: Conductor) -> None:
        try:
            assert conductor.start("running") is not None
        except BrokenPipeError as error:
            raise TuneError(str(error)) from error
        conductor.watch("running")
        now = conductor.clock() + 2
        conductor.clock = lambda: now
        assert conductor.stalled() == ["running"]
        conductor.lose("running", "killed")
        assert conductor.done and not conductor.faults.open

    with pytest.raises(BrokenPipeError):
        tune(run_on, notify=Mock(side_effect=BrokenPipeError))
