"""What a probe tries of a study's arms, and what it says of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import pytest

from topk_platform import (
    Arm,
    Choice,
    Int,
    LabelNoise,
    Loss,
    Model,
    Protocol,
    Recipe,
    Regime,
    Study,
    TrainFraction,
)
from topk_platform.errors import UserError
from topk_platform.running.estimate import fitting
from topk_platform.running.estimate.batch_sizes import ArmProbe
from topk_platform.running.estimate.fitting import probe
from topk_platform.specs import Trial
from topk_platform.training.probing import StepError

RECIPE = Recipe(epochs=30, batch_size=256)


class Fake:
    """A device that holds so many samples of a part, with that of an eighth for each of the whole batch."""

    def __init__(
        self, trial: Trial, memory: int | None, samples: float, normalised: bool = False, scores: bool = True
    ) -> None:
        self.trial, self.memory, self.samples = trial, memory, samples
        self.normalised, self.scores = normalised, scores
        self.tried: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fits(self, size: int, parts: int = 1) -> bool:
        self.tried.append((size, parts))
        if self.normalised and size == 1:
            raise StepError("ValueError: Expected more than 1 value per channel when training")
        return math.ceil(size / parts) + size / 8 <= self.samples

    def scores_fit(self) -> bool:
        return self.scores


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Fake]]:
    """Let attempts be on a fake; return the list of those that are made."""

    def pretend(samples: float = 72, **options: Any) -> list[Fake]:
        made: list[Fake] = []

        def make(trial: Trial, memory: int | None) -> Fake:
            made.append(Fake(trial, memory, samples, **options))
            return made[-1]

        monkeypatch.setattr(fitting, "_attempts", make)
        return made

    return pretend


def arm(
    name: str = "r",
    *conditions: Any,
    model: str = "mlp",
    loss: Loss | None = None,
    recipe: Recipe = RECIPE,
    **changes: Any,
) -> Arm:
    regime = Regime(name, "digits", conditions)
    return Arm(regime, Model(model), loss or Loss("cross_entropy"), 3, recipe, metric="top1", **changes)


def probed(*arms: Arm, **options: Any) -> list[ArmProbe]:
    return list(probe(Study("s", arms), **options).arms)


def test_the_largest_batch_and_the_parts_of_the_recipes(device: Callable[..., list[Fake]]) -> None:
    """64 and an eighth of them are 72; of 256 samples 32 are taken by their inputs, which leaves parts of 40."""
    device()
    (result,) = probed(arm())
    assert (result.largest, result.batch, result.accumulate, result.problem) == (64, 256, 7, "")
    (small,) = probed(arm(recipe=Recipe(epochs=30, batch_size=48)))
    assert (small.largest, small.batch, small.accumulate) == (63, 48, 1)


def test_no_part_may_be_small_enough(device: Callable[..., list[Fake]]) -> None:
    device(samples=30)
    (result,) = probed(arm())
    assert 25 <= result.largest <= 26
    assert result.accumulate is None


def test_arms_that_need_the_same_memory_are_tried_once(device: Callable[..., list[Fake]]) -> None:
    made, messages = device(), []
    arms = [
        arm("half", TrainFraction(0.5)),
        arm("clean"),
        arm("noisy", LabelNoise(0.4), recipe=Recipe(epochs=9, batch_size=96, keep=("top1",), patience=3)),
        arm("linear", model="linear"),
        arm("adam", recipe=Recipe(epochs=9, optimizer="adam")),
    ]
    actual = probed(*arms, report=messages.append)
    assert [result.arm for result in actual] == arms
    assert [fake.trial.arm.regime.name for fake in made] == ["clean", "linear", "adam"]
    assert [one.regime.name for one in messages] == ["clean", "linear", "adam"]
    assert {result.largest for result in actual[:3]} == {64}
    assert [result.accumulate for result in actual[:3]] == [7, 7, 2]


def test_a_batch_never_exceeds_the_training_split(device: Callable[..., list[Fake]]) -> None:
    made = device(samples=10**6)
    few, all_of_them = probed(arm("few", TrainFraction(0.1)), arm("all", recipe=Recipe(30, batch_size=10**6)))
    assert few.largest == few.samples < 200
    assert few.batch == few.samples and few.accumulate == 1
    assert all_of_them.largest == all_of_them.batch == all_of_them.samples > 1000
    assert max(size for size, _ in made[0].tried) == all_of_them.samples


@pytest.mark.parametrize(
    ("loss", "batch"),
    [
        (Loss("cross_entropy", {"batch_size": Choice((32, 512, 64))}, {"batch_size": 32}), 512),
        (Loss("cross_entropy", {"batch_size": Int(8, 300)}, {"batch_size": 8}), 300),
        (Loss("cross_entropy", fixed={"batch_size": 24}), 24),
    ],
)
def test_of_batch_sizes_that_are_searched_the_largest_counts(
    device: Callable[..., list[Fake]], loss: Loss, batch: int
) -> None:
    device()
    assert probed(arm(loss=loss))[0].batch == batch


def test_nothing_found_says_why(device: Callable[..., list[Fake]]) -> None:
    device(samples=0.5)
    (none,) = probed(arm())
    assert (none.largest, none.accumulate) == (0, None)
    assert none.problem == "not even a batch of one sample fits"
    device(samples=1, normalised=True)
    (one,) = probed(arm())
    assert one.problem.startswith(
        "two do not fit, and a training step of batch size 1 fails: ValueError: Exp"
    )


def test_scoring_has_to_fit_as_well(device: Callable[..., list[Fake]]) -> None:
    device(scores=False)
    (result,) = probed(arm())
    assert (result.largest, result.accumulate) == (64, 7)
    assert result.problem == "batches fit, but not as many samples as are scored at once"


def test_ensembles_are_not_tried(device: Callable[..., list[Fake]]) -> None:
    made = device()
    (result,) = probed(arm(protocol=Protocol(ensemble=3)))
    assert result.problem == "ensembles are not probed"
    assert made == []


def test_memory_is_given_or_shared_by_trials_at_once(
    device: Callable[..., list[Fake]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "local_cpus", lambda: 8)
    monkeypatch.setattr(fitting, "available_memory", lambda: 2**33)
    device()
    assert probe(Study("s", [arm()]), memory=1.5).memory == 3 * 2**29
    for threads, memory in ((1, 2**30), (3, 2**32), (16, 2**33)):
        made = device()
        assert probe(Study("s", [arm()], threads=threads)).memory == memory
        assert made[0].memory == memory
    with pytest.raises(UserError, match="memory must be above 0 GiB, got -1"):
        probe(Study("s", [arm()]), memory=-1)
