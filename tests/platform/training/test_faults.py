"""What is a result, and what a fault of the machinery: never recorded, raised to who runs the trial."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small_trials import Memory, a_trial, listened, same_weights, trained
from torch import Tensor

from topk_platform import Recipe
from topk_platform.errors import (
    BrokenDeviceError,
    RefusingStoreError,
    SharedMemoryError,
    StalledError,
    StoreError,
    TimeLimitError,
    UnreachableStoreError,
)
from topk_platform.training import faults, finish, group, run, run_trials
from topk_platform.training.faults import FIRST_SECONDS, Pace, machinery_fault
from topk_platform.training.session import Session

STEPS = 17  # of an epoch


KINDS = {"ranks", "guesses", "network"}


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, without waiting for them."""
    slept: list[float] = []
    monkeypatch.setattr(run.time, "sleep", slept.append)  # type: ignore[attr-defined]
    return slept


def refusing(kinds: set[str], error: Exception, tries: float = math.inf) -> Any:
    """A keeper that refuses some kinds of files for so many tries, and has three pauses; it notes every try."""
    keeper: Any = Memory()
    keeper.pauses, keeper.tried = (1.0, 4.0, 16.0), []

    def tried(kind: str, save: Callable[..., str], *arguments: Any) -> str:
        keeper.tried.append(kind)
        if kind in kinds and keeper.tried.count(kind) <= tries:
            raise error
        return save(*arguments)

    for kind, name in (("network", "save_model"), ("ranks", "save_ranks"), ("guesses", "save_guesses")):
        setattr(keeper, name, partial(tried, kind, getattr(keeper, name)))
    return keeper


@pytest.mark.parametrize("together", [(), (1, 2)])
def test_the_records_come_once_all_that_belongs_to_them_is_stored(together: tuple[int, ...]) -> None:
    trials = [a_trial(seed=seed, together=together) for seed in together or (1,)]
    keeper, keys = Memory(), {trial.key for trial in trials}
    pulses, records = listened(run_trials(trials, keeper))
    assert keeper.ranks.keys() == keeper.guesses.keys() == keeper.models.keys() == keys
    assert pulses[-1].patience == FIRST_SECONDS
    for record in records:
        assert record.artifacts == {kind: f"of the {kind}" for kind in KINDS} and record.missing == {}
    searched = trained(a_trial(phase="search", seed=0), keeper)
    assert searched.artifacts == searched.missing == {}


@pytest.mark.parametrize("together", [(), (1, 2)])
@pytest.mark.parametrize("kind", ["ranks", "guesses"])
def test_a_confirmation_without_its_ranks_or_guesses_is_a_fault_and_has_no_record(
    kind: str, together: tuple[int, ...], slept: list[float]
) -> None:
    """The pauses are those of all files together."""
    keeper = refusing({kind}, StoreError("store 'runs/s' cannot be written: No space left on device"))
    trials = [a_trial(seed=seed, together=together) for seed in together or (1,)]
    with pytest.raises(
        RefusingStoreError, match=r"ranks and guesses cannot be stored: store 'runs/s' .*No space"
    ):
        finish(run_trials(trials, keeper))
    assert keeper.tried.count(kind) == 4 and slept == [1.0, 4.0, 16.0]
    assert not RefusingStoreError.passing  # it was waited for


def test_an_error_of_ours_while_ranks_are_stored_is_no_result_either(slept: list[float]) -> None:
    keeper = refusing({"ranks"}, ImportError("no module named pyarrow"))
    with pytest.raises(RefusingStoreError, match="no module named pyarrow"):
        trained(a_trial(), keeper)
    assert slept == []


def test_a_network_that_cannot_be_kept_costs_no_result_and_the_record_says_why(slept: list[float]) -> None:
    keeper, trial = refusing({"network"}, OSError("No space left on device")), a_trial()
    record = trained(trial, keeper)
    assert record.status == "completed"
    assert record.test == trained(trial).test
    assert record.artifacts.keys() == {"ranks", "guesses"} and trial.key in keeper.ranks
    assert record.missing == {"network": "OSError: No space left on device"}
    assert keeper.tried.count("network") == 4 and slept == [1.0, 4.0, 16.0]


@pytest.mark.parametrize(
    "error", [FileExistsError("in the way"), StoreError("cannot be written"), RuntimeError("shares memory")]
)
def test_what_no_waiting_helps_against_is_not_waited_for(error: Exception, slept: list[float]) -> None:
    """A file in the way of a folder, told by the system or by the store, and a network that nobody can write."""
    if isinstance(error, StoreError):
        error.__cause__ = NotADirectoryError("models")
    keeper = refusing({"network"}, error)
    record = trained(a_trial(), keeper)
    assert record.missing == {"network": f"{type(error).__name__}: {error}"}
    assert slept == [] and keeper.tried == ["ranks", "guesses", "network"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_store_that_refuses_for_a_while_costs_nothing(kind: str, slept: list[float]) -> None:
    keeper, sound = refusing({kind}, TimeoutError("the bucket does not answer"), tries=2), Memory()
    trial = a_trial(recipe=Recipe(2, keep=("top1", "top3")))
    pulses, (record,) = listened(run_trials([trial], keeper))
    assert slept == [1.0, 4.0] and record.artifacts.keys() == KINDS
    assert {pulse.patience for pulse in pulses[-3:]} == {FIRST_SECONDS}
    trained(trial, sound)
    assert torch.equal(keeper.ranks[trial.key], sound.ranks[trial.key])
    assert same_weights(sound.models[trial.key], keeper.models[trial.key])


@pytest.mark.parametrize("broken", ["load", "save"])
def test_a_store_that_fails_is_a_fault(broken: str) -> None:
    keeper = Memory()

    def fails(*_: object) -> None:
        raise ConnectionError("bucket refused")

    setattr(keeper, broken, fails)
    with pytest.raises(UnreachableStoreError, match=r"checkpoint cannot be .*: bucket refused"):
        trained(a_trial(), keeper)


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
    result = machinery_fault(out_of_memory(), "cuda")
    assert type(result) is (type(None) if fault is None else fault)
    assert machinery_fault(MemoryError(), "cpu") is None
    assert machinery_fault(ArithmeticError("a loss's own"), "cuda") is None


def test_a_broken_gpu_is_a_fault() -> None:
    error = RuntimeError("CUDA error: uncorrectable ECC error encountered")
    assert isinstance(machinery_fault(error, "cuda"), BrokenDeviceError)


@pytest.mark.parametrize("neighbour", [False, True])
def test_a_trial_out_of_memory_failed_alone_and_is_tried_again_beside_a_neighbour(
    neighbour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_held_by_others", lambda: 38 * 2**30 if neighbour else 2**29)
    monkeypatch.setattr(group.Group, "device", "cuda")
    monkeypatch.setattr(Session, "prepare", raising(out_of_memory()))
    training = run_trials([a_trial()])
    if neighbour:
        with pytest.raises(SharedMemoryError, match=r"other processes held 38.0 GiB"):
            finish(training)
    else:
        (record,) = finish(training)
        assert record.status == "failed"
        assert record.reason.startswith("out of memory at batch size 64, take a smaller")


def raising(error: Exception) -> Callable[..., Any]:
    def prepare(*_: object) -> Any:
        raise error

    return prepare


def test_a_stopped_member_keeps_a_reason_when_the_ensemble_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One member stops at once, for nothing gets better than by a learning rate of 0; another's code then raises."""
    shared = {"phase": "search", "seed": 0, "recipe": Recipe(6, keep=("top1",), patience=1)}
    trials = [a_trial(number=n, values={"learning_rate": r}, **shared) for n, r in enumerate((1e-12, 0.1))]
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


def test_a_trial_over_its_limit_ends_without_a_result_and_goes_on_from_where_it_was() -> None:
    """The limit is for all of its processes together, and no part of its key."""
    trial, keeper = a_trial(recipe=Recipe(3)), Memory()
    with pytest.raises(TimeLimitError, match="time_limit is"):
        finish(run_trials([trial], keeper, time_limit=1e-9))
    keeper.cut = STEPS + 4
    with pytest.raises(KeyboardInterrupt):
        trained(trial, keeper)
    keeper.states[-1]["elapsed"] = 7200.0
    with pytest.raises(TimeLimitError, match="trained for 2 h, time_limit is 1 h"):
        finish(run_trials([trial], keeper, time_limit=3600.0))
    (resumed,) = finish(run_trials([trial], keeper, time_limit=10800.0))
    whole = trained(trial)
    assert resumed.test == whole.test and resumed.validation == whole.validation


def test_a_clock_that_is_set_back_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wall clocks are for the record alone: one that jumps back by an hour at every look."""
    expected = trained(a_trial())
    looks = iter(range(10**6))
    monkeypatch.setattr("time.time", lambda: 1e9 - 3600.0 * next(looks))
    record = trained(a_trial())
    assert record.status == "completed"
    assert (record.test, record.validation) == (expected.test, expected.validation)
    assert record.ended > record.started and record.train_seconds >= 0


def test_signs_of_life_come_between_two_validations_and_say_how_long_the_next_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "_HEARTBEAT_SECONDS", 0.0)
    keeper = Memory()
    keeper.seconds = 3600.0
    pulses, _ = listened(run_trials([a_trial(recipe=Recipe(4, evaluate_every=4))], keeper))
    assert len(pulses) == 4 * STEPS + 2  # a step each, one before the test set, one before what is stored
    assert {pulse.patience for pulse in pulses[: STEPS - 1]} == {FIRST_SECONDS}
    assert {pulse.patience for pulse in pulses[STEPS:-2]} == {60.0}
    assert [pulse.patience for pulse in pulses[-2:]] == [FIRST_SECONDS] * 2


def test_a_resumed_trial_says_at_once_from_where() -> None:
    trial, keeper = a_trial(), Memory(STEPS + 3)
    with pytest.raises(KeyboardInterrupt):
        trained(trial, keeper)
    first = next(run_trials([trial], keeper))
    assert (first.epoch, first.kept) == (1, STEPS + 3)
