"""What is a result, and what a fault of the machinery: never recorded, raised to who runs the trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from topk_platform import Model, Recipe
from topk_platform.errors import (
    BrokenDeviceError,
    SharedMemoryError,
    StalledError,
    TimeLimitError,
    UnreachableStoreError,
)
from topk_platform.specs import Inputs, Trial
from topk_platform.training import Finished, Pulse, faults, finish, group, run, run_trials
from topk_platform.training.faults import machinery_fault
from topk_platform.training.pace import FIRST_SECONDS, Pace

MakeTrial = Callable[..., Trial]
STEPS = 17  # of an epoch


def listened(training: Iterator[Pulse]) -> tuple[list[Pulse], Finished]:
    pulses = []
    while True:
        try:
            pulses.append(next(training))
        except StopIteration as end:
            return pulses, end.value


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(run.time, "sleep", slept.append)  # type: ignore[attr-defined]
    return slept


def test_a_network_that_cannot_be_kept_costs_no_result(
    make_trial: MakeTrial, memory: Any, no_pauses: list[float]
) -> None:
    """The record is there first, and the same as with a network that can be kept."""
    tried = []

    class Full(memory):  # type: ignore[misc]
        def save_model(self, trial: Trial, model: nn.Module, inputs: Inputs) -> None:
            tried.append(trial.key)
            raise OSError("No space left on device")

    trial = make_trial()
    pulses, finished = listened(run_trials([trial], Full()))
    (record,) = finished.records
    (told,) = pulses[-1].records
    assert told.status == record.status == "completed"
    assert told.test == record.test == finish(run_trials([trial]))[0].test
    assert finished.unsaved == {trial.key: "OSError: No space left on device"}
    assert len(tried) == 4 and no_pauses == [1.0, 4.0, 16.0]


def test_a_network_is_tried_to_be_kept_again(
    make_trial: MakeTrial, memory: Any, no_pauses: list[float]
) -> None:
    class Shaky(memory):  # type: ignore[misc]
        def save_model(self, trial: Trial, model: nn.Module, inputs: Inputs) -> None:
            if not no_pauses:
                raise TimeoutError("the bucket does not answer")
            super().save_model(trial, model, inputs)

    keeper, sound = Shaky(), memory()
    trial = make_trial(recipe=Recipe(2, keep=("top1", "top3")))
    assert listened(run_trials([trial], keeper))[1].unsaved == {}
    finish(run_trials([trial], sound))
    for name, value in sound.models[trial.key].items():
        assert torch.equal(value, keeper.models[trial.key][name])


@pytest.mark.parametrize("broken", ["load", "save"])
def test_a_store_that_fails_is_a_fault(broken: str, make_trial: MakeTrial, memory: Any) -> None:
    keeper = memory()

    def fails(*_: object) -> None:
        raise ConnectionError("bucket refused")

    setattr(keeper, broken, fails)
    with pytest.raises(UnreachableStoreError, match=r"checkpoint cannot be .*: bucket refused"):
        finish(run_trials([make_trial()], keeper))


def test_what_the_trials_own_code_raises_is_a_result(make_trial: MakeTrial) -> None:
    trial = make_trial(model=Model(f"{__name__}:unbuildable"))
    (record,) = finish(run_trials([trial]))
    assert record.status == "failed" and "ZeroDivisionError" in record.reason


def unbuildable(shape: tuple[int, ...], classes: int, head: str = "linear") -> nn.Module:
    raise ZeroDivisionError("in its constructor")


def out_of_memory() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(
    ("free", "own", "fault"),
    [
        (2, 77, None),  # all but its context is its own
        (2, 40, SharedMemoryError),  # somebody else has 38 GiB
    ],
)
def test_memory_is_the_trials_own_matter_unless_a_neighbour_holds_some(
    free: int, own: int, fault: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: own * 2**30)
    found = machinery_fault(out_of_memory(), "cuda")
    assert type(found) is (type(None) if fault is None else fault)
    assert machinery_fault(MemoryError(), "cpu") is None
    assert machinery_fault(ArithmeticError("a loss's own"), "cuda") is None


def test_a_broken_gpu_is_a_fault() -> None:
    error = RuntimeError("CUDA error: uncorrectable ECC error encountered")
    assert isinstance(machinery_fault(error, "cuda"), BrokenDeviceError)


@pytest.mark.parametrize("neighbour", [False, True])
def test_a_trial_out_of_memory_failed_alone_and_is_tried_again_beside_a_neighbour(
    neighbour: bool, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_held_by_others", lambda: 38 * 2**30 if neighbour else 2**29)
    monkeypatch.setattr(group.Group, "device", "cuda")
    monkeypatch.setattr(run.Session, "prepare", raising(out_of_memory()))
    training = run_trials([make_trial()])
    if neighbour:
        with pytest.raises(SharedMemoryError, match=r"other processes held 38.0 GiB"):
            finish(training)
    else:
        (record,) = finish(training)
        assert record.status == "failed"
        assert record.reason.startswith("out of memory at batch size 64, `topk probe` names")


def raising(error: Exception) -> Callable[..., Any]:
    def prepare(*_: object) -> Any:
        raise error

    return prepare


def test_an_early_stopped_member_keeps_a_reason_when_the_ensemble_fails(
    make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member stops at once, for nothing gets better than by a learning rate of 0; another's code then raises."""
    recipe = Recipe(6, keep=("top1",), patience=1)
    rates = (1e-12, 0.1)
    trials = [
        make_trial(phase="search", seed=0, number=n, values={"learning_rate": rates[n]}, recipe=recipe)
        for n in range(2)
    ]
    ended = run._end_epoch

    def failing(of: group.Group, learner: Any, trained: Tensor) -> None:
        ended(of, learner, trained)
        if of.epoch == 3:
            assert of.members[0].stopped and of.members[0].status is None
            raise ArithmeticError("no such luck")

    monkeypatch.setattr(run, "_end_epoch", failing)
    first, second = finish(run_trials(trials))
    for record in (first, second):
        assert record.status == "failed" and "no such luck" in record.reason


class Clock:
    """Moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_patience_follows_the_trials_own_epochs() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    assert pace.patience == FIRST_SECONDS
    pace.check(1, 0.0)
    seconds = (700.0, 10.0, 10.0, 0.1, 12.0)
    usual = [700.0, 355.0, 10.0, 10.0, 10.0]
    for taken, median in zip(seconds, usual, strict=True):
        clock.now += taken
        pace.end_epoch()
        assert pace.patience == pytest.approx(20 * median)
    clock.now += 199
    pace.check(6, 0.0)
    clock.now += 2
    with pytest.raises(StalledError, match=r"epoch 6 has taken 201 s, the earlier ones 10 s each"):
        pace.check(6, 0.0)


def test_a_short_epoch_may_take_a_minute() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    clock.now += 0.01
    pace.end_epoch()
    assert pace.patience == 60.0
    clock.now += 59
    pace.check(2, 0.0)


def test_a_trial_over_its_limit_ends_without_a_result_and_goes_on_from_where_it_was(
    make_trial: MakeTrial, memory: Any
) -> None:
    """The limit is for all of its processes together, and no part of its key."""
    trial, keeper = make_trial(recipe=Recipe(3)), memory()
    with pytest.raises(TimeLimitError, match="time_limit is"):
        finish(run_trials([trial], keeper, time_limit=1e-9))
    keeper.cut = STEPS + 4
    with pytest.raises(KeyboardInterrupt):
        finish(run_trials([trial], keeper))
    keeper.states[-1]["elapsed"] = 7200.0
    with pytest.raises(TimeLimitError, match="trained for 2 h, time_limit is 1 h"):
        finish(run_trials([trial], keeper, time_limit=3600.0))
    (resumed,) = finish(run_trials([trial], keeper, time_limit=10800.0))
    (whole,) = finish(run_trials([trial]))
    assert resumed.test == whole.test and resumed.validation == whole.validation


def test_a_clock_that_is_set_back_changes_nothing(
    make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wall clocks are for the record alone: one that jumps back by an hour at every look."""
    expected = finish(run_trials([make_trial()]))[0]
    looks = iter(range(10**6))
    monkeypatch.setattr("time.time", lambda: 1e9 - 3600.0 * next(looks))
    (record,) = finish(run_trials([make_trial()]))
    assert (record.status, record.test, record.validation) == (
        "completed",
        expected.test,
        expected.validation,
    )
    assert record.ended > record.started and record.train_seconds >= 0


def test_signs_of_life_come_between_two_validations_and_say_how_long_the_next_may_take(
    make_trial: MakeTrial, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "_BEAT_SECONDS", 0.0)
    keeper = memory()
    keeper.seconds = 3600.0
    pulses, _ = listened(run_trials([make_trial(recipe=Recipe(4, evaluate_every=4))], keeper))
    assert len(pulses) == 4 * STEPS + 2  # a step each, one before the test set, one with the record
    assert {pulse.patience for pulse in pulses[: STEPS - 1]} == {FIRST_SECONDS}
    assert {pulse.patience for pulse in pulses[STEPS:-2]} == {60.0}
    assert [pulse.patience for pulse in pulses[-2:]] == [FIRST_SECONDS] * 2
    assert [bool(pulse.records) for pulse in pulses] == [False] * (len(pulses) - 1) + [True]


def test_a_resumed_trial_says_at_once_from_where(make_trial: MakeTrial, memory: Any) -> None:
    trial, keeper = make_trial(), memory(STEPS + 3)
    with pytest.raises(KeyboardInterrupt):
        finish(run_trials([trial], keeper))
    first = next(run_trials([trial], keeper))
    assert (first.epoch, first.kept) == (1, STEPS + 3)
