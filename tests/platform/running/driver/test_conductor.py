"""What becomes of faults: tried again with growing pauses, anew after progress, and left open in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from topk_platform import Float, Loss, Model, NoPruning, Protocol, Recipe, Regime, Study, grid
from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard, Board
from topk_platform.protocol.ended import Ended
from topk_platform.running.driver.assignments import Orders
from topk_platform.running.driver.conductor import Conductor
from topk_platform.running.driver.retries import PAUSES, Retries
from topk_platform.running.driver.starts import Starts
from topk_platform.running.machine.gpu_use import GpuSample
from topk_platform.specs import EpochRecord, Trial, TrialRecord

SEARCHED = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})


@dataclass
class Stage:
    """A conductor whose clock a test turns, and what it kept and told."""

    conductor: Conductor
    board: Board
    kept: list[TrialRecord]
    now: list[float]
    names: list[str] = field(default_factory=list)

    def start(self, name: str = "") -> str:
        """Start the next trial; return its name, or nothing where none may start."""
        name = name or f"t{len(self.names)}"
        if self.conductor.start(name) is None:
            return ""
        self.names.append(name)
        self.conductor.watch(name)
        return name

    def key(self, name: str) -> str:
        return self.conductor._runs[name].key

    def end(self, name: str, status: str = "completed") -> None:
        """Let a worker bring its trial's records."""
        trials = self.conductor._runs[name].trials
        records = [record_of(trial, status).to_json() for trial in trials]
        self.conductor.receive(name, {"ended": True, "records": records})

    def turn(self, seconds: float) -> list[str]:
        """Let the driver turn for so long, once every two seconds; return what it found stalled."""
        result = []
        for _ in range(round(seconds / 2)):
            self.now[0] += 2
            result += self.conductor.stalled()
        return result

    def run_all(self) -> None:
        while name := self.start():
            self.end(name)


def record_of(trial: Trial, status: str = "completed") -> TrialRecord:
    epoch = EpochRecord(1, 0.5, {"top1": 0.5, "top3": 0.5}, 1.0, 0.1)
    return TrialRecord(trial, status, epochs=(epoch,))  # type: ignore[arg-type]


@pytest.fixture
def stage(tmp_path: Path) -> Callable[..., Stage]:
    def make(arms: int = 1, protocol: Protocol | None = None, keep: Any = None, **sizes: int) -> Stage:
        how = protocol or Protocol(pruner=NoPruning())
        regimes = [Regime(f"r{i}", "digits") for i in range(arms)]
        made = grid(regimes, [Model("mlp")], [SEARCHED], k=3, recipe=Recipe(1), protocol=how)
        study = Study("s", made, topk=(1, 3), **{"trials": 2, "seeds": 1, **sizes})  # type: ignore[arg-type]
        board = Board(ArmBoard(study, arm, Identity("c", "f")) for arm in made)
        kept: list[TrialRecord] = []
        now = [0.0]
        orders = Orders(str(tmp_path), 30.0, 3600.0)
        conductor = Conductor(
            board, keep or kept.append, lambda _: None, orders, PAUSES, clock=lambda: now[0]
        )
        return Stage(conductor, board, kept, now)

    return make


def test_a_fault_is_tried_again_after_growing_pauses_then_left_open(stage: Callable[..., Stage]) -> None:
    result = stage()
    pauses = []
    for _ in PAUSES:
        name = result.start()
        result.conductor.lose(name, "the node died")
        assert not result.start()  # neither it nor what has to know it
        wait = result.conductor.wait
        assert wait is not None
        pauses.append(wait)
        result.now[0] += wait
    name = result.start()
    key = result.key(name)
    result.conductor.lose(name, "the node died")
    assert tuple(pauses) == PAUSES
    assert result.conductor.done and result.conductor.wait is None
    assert result.kept == []
    (left,) = result.conductor.faults.open
    assert (left.key, left.arm) == (key, "r0/mlp/smooth_topk_svm")
    assert left.fault == "process lost: the node died"
    assert result.board.left == 2 + 1 and result.board.stuck and result.board.again == len(PAUSES)


def test_the_study_goes_on_without_what_waits_or_is_open(stage: Callable[..., Stage]) -> None:
    result = stage(arms=3)
    first = result.start()
    arm = result.conductor._runs[first].trials[0].arm_id
    result.conductor.receive(first, {"ended": True, "fault": "TimeLimitError", "why": "2 h of 1 h"})
    result.run_all()
    assert {record.trial.arm_id for record in result.kept} == set(result.board.arms) - {arm}
    assert len(result.kept) == 2 * (2 + 1)
    assert result.conductor.done
    assert [left.fault for left in result.conductor.faults.open] == ["time limit: 2 h of 1 h"]


def test_a_trial_is_taken_from_a_worker_that_does_not_start_and_given_to_another(
    stage: Callable[..., Stage],
) -> None:
    staged = stage()
    conductor = staged.conductor
    room = [0]
    conductor.starts = Starts(800, lambda waiting: min(waiting, room[0]))
    assert conductor.start("stuck") is not None
    key = staged.key("stuck")
    staged.turn(5000)  # machines that others use, or that are being added
    assert not conductor.deserted and conductor.wait is None
    room[0] = 1
    staged.turn(1000)
    assert conductor.deserted and conductor.wait is not None and staged.board.again == 1
    staged.now[0] += PAUSES[0]
    name = staged.start()
    assert staged.key(name) == key and not conductor.deserted
    assert not conductor.watch("stuck")
    conductor.receive("stuck", {"ended": True, "refused": "it is being ended"})
    conductor.lose("stuck", "it was ended")
    assert not conductor.refusal and staged.key(name) == key and staged.board.again == 1
    staged.end(name)
    staged.run_all()
    assert conductor.done and conductor.faults.open == []


def test_a_trial_that_gets_further_is_never_given_up(stage: Callable[..., Stage]) -> None:
    result = stage()
    for number in range(50):
        name = result.start()
        result.conductor.receive(name, {"ended": False, "kept": 10 * number, "patience": 60.0})
        result.conductor.lose(name, "preempted")
        assert result.conductor.wait == PAUSES[0]
        result.now[0] += PAUSES[0]
    name = result.start()
    result.end(name)
    assert result.conductor.faults.open == [] and len(result.kept) == 1


def test_one_that_is_set_back_does_not_count_as_further() -> None:
    retries = Retries((1.0, 2.0))
    retries.progress("a", 5)
    assert retries.pause("a") == 1.0
    for step in (0, 3, 5):
        retries.progress("a", step)
    assert retries.pause("a") == 2.0
    assert retries.pause("a") is None
    retries.forget("a")
    assert retries.pause("a") == 1.0


def test_a_silent_process_is_ended_after_its_own_patience(stage: Callable[..., Stage]) -> None:
    result = stage(arms=2)
    quick, _ = result.start(), result.start()
    result.conductor.receive(quick, {"ended": False, "kept": 1, "patience": 100.0})
    assert result.turn(158) == []
    assert result.turn(6) == [quick]
    assert result.turn(60) == []  # told once
    result.conductor.lose(quick, "killed")
    result.now[0] += PAUSES[0]
    for _ in PAUSES[1:]:
        again = result.start()
        result.conductor.lose(again, "killed")
        result.now[0] += 1000
    last = result.start()
    result.turn(3700)
    result.conductor.lose(last, "killed")
    (left,) = result.conductor.faults.open
    assert left.fault.startswith("stalled: its process showed no progress for 36")


def test_a_trials_progress_goes_on_to_those_who_watch(stage: Callable[..., Stage]) -> None:
    at, events = stage(), []
    at.conductor.notify = events.append
    name = at.start()
    message = {"ended": False, "epoch": 2, "kept": 0, "patience": 60.0}
    message |= {"gpu": ["GPU-a", 0.5, 1, 2], "curve": [0.5, 0.75]}
    at.conductor.receive(name, message)
    assert [event.kind for event in events] == ["started", "progress"]
    assert events[1].sample == GpuSample("GPU-a", 0.5, 1, 2) and events[1].workers == 1
    assert (events[1].epoch, events[1].curve) == (2, (0.5, 0.75))
    assert "curve" not in message  # Tune would keep it


def test_a_driver_that_stood_still_itself_blames_nobody(stage: Callable[..., Stage]) -> None:
    result = stage()
    name = result.start()
    result.conductor.receive(name, {"ended": False, "kept": 0, "patience": 60.0})
    result.now[0] += 8 * 3600  # a laptop that was shut
    assert result.conductor.stalled() == []


def test_why_a_network_is_missing_is_reported_from_the_record(stage: Callable[..., Stage]) -> None:
    result = stage(trials=1)
    search = result.start()
    result.end(search)
    name = result.start()
    (trial,) = result.conductor._runs[name].trials
    record = replace(record_of(trial), missing={"network": "OSError: in the way"})
    message = {"ended": True, "records": [record.to_json()]}
    result.conductor.receive(name, message)
    assert "records" not in message  # Tune would keep them
    assert [record.missing for record in result.kept] == [{}, {"network": "OSError: in the way"}]
    assert result.conductor.faults.unsaved == {trial.key: "OSError: in the way"}
    assert result.conductor.done and result.board.left == 0


def test_a_worker_is_given_the_members_of_an_ensemble_that_have_a_record(stage: Callable[..., Stage]) -> None:
    """Their files stay as they are."""
    result = stage(trials=1, seeds=2, protocol=Protocol(ensemble=2, pruner=NoPruning()))
    search = result.start()
    result.end(search)
    config = result.conductor.start("confirms")
    assert config is not None and config["recorded"] == []
    first, second = result.conductor._runs["confirms"].trials
    result.board.end(first, Ended.from_record(record_of(first)))
    result.conductor.lose("confirms", "the node died")
    result.now[0] += PAUSES[0]
    config = result.conductor.start("again")
    assert config is not None and config["recorded"] == [first.key]
    assert len(config["trials"]) == 2 and second.key not in config["recorded"]


def test_a_record_that_cannot_be_written_ends_the_study_and_is_raised_afterwards(
    stage: Callable[..., Stage],
) -> None:
    result = stage(arms=2, keep=Mock(side_effect=OSError("No space left on device")))
    one, other = result.start(), result.start()
    result.end(one)
    assert result.conductor.done
    result.end(other)
    assert "No space left" in str(result.conductor.broken)
    assert result.board.left == 2 * 3


def test_an_ensemble_is_left_open_whole(stage: Callable[..., Stage]) -> None:
    result = stage(protocol=Protocol(ensemble=2, pruner=NoPruning()), seeds=2)
    name = result.start()
    result.conductor.receive(name, {"ended": True, "fault": "TimeLimitError", "why": "too long"})
    assert len({left.key for left in result.conductor.faults.open}) == 2
    assert result.conductor.done
