"""`make regression`: what it compares, that it finds what moved, and that its bounds are those of its trials."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from topk_losses.backends import use_backend
from topk_platform.data import Population, load
from topk_platform.training.loss_table import LOSSES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def regression() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("regression")
    sys.path.remove(str(BENCHMARKS))


def test_every_loss_is_tried_in_every_kind_of_regime_and_all_trials_are_stored(
    regression: ModuleType,
) -> None:
    result = {case.name for case in regression.cases("cpu")}
    assert result >= {
        f"{regime}/{loss}" for loss in LOSSES for regime in ("clean", "noise", "tail", "fraction")
    }
    assert result == set(regression._read())


def test_its_bounds_hold_for_all_trials(regression: ModuleType) -> None:
    """No value comes of more steps, no accuracy of fewer samples, than the floors of tolerances count on."""
    for case in regression.cases("cpu"):
        arm = case.trials[0].arm
        source = load(arm.regime)
        data = source.example if isinstance(source, Population) else source
        assert min(len(data.validation), len(data.test)) >= regression.SAMPLES
        if not arm.regime.conditions:  # which only take samples away
            steps = arm.recipe.epochs * math.ceil(len(data.train) / arm.recipe.batch_size)
            assert steps <= regression.STEPS


def test_what_moved_is_named_with_how_far_it_may(regression: ModuleType) -> None:
    stored = {
        "a/x": {"train_loss.1": regression.Stored(2.0, 0.001), "test.top1": regression.Stored(0.5, 0.0)}
    }
    within = {"a/x": {"train_loss.1": 2.009, "test.top1": 0.5 + 1.9 / regression.SAMPLES}}
    changes = [
        line for line in regression.compare(stored, within, "cpu") if not line.endswith("among the trials")
    ]
    assert changes == []
    moved = regression.compare(stored, {"a/x": {"train_loss.1": 2.02, "test.top1": math.nan}}, "cpu")
    assert [line for line in moved if "was" in line] == [
        "a/x: test.top1 was 0.5, is nan: moved by +nan, where 0.02 is allowed",
        "a/x: train_loss.1 was 2, is 2.02: moved by +0.02, where 0.01 is allowed",
    ]
    assert any("not among the stored" in line for line in regression.compare({}, within, "cpu"))
    gone = regression.compare(stored, {"a/x": {"train_loss.1": 2.0}}, "cpu")
    assert "a/x: test.top1 is missing" in gone and any("no longer among the trials" in line for line in gone)


def test_what_is_drawn_on_the_device_is_not_compared_on_a_gpu(regression: ModuleType) -> None:
    left_out = {
        case.name for case in regression.cases("cuda") if not regression._comparable(case, "cuda", "auto")
    }
    assert {"augmented/cutmix", "clean/noised_topk_hinge"} <= left_out
    assert not left_out & {"clean/cross_entropy", "network/resnet18_small", "recipe/schedule"}


@pytest.mark.parametrize("name", ["clean/cross_entropy", "noise/topk_hinge"])
def test_a_trial_is_as_stored_and_one_that_differs_by_a_hundredth_is_not(
    regression: ModuleType, name: str
) -> None:
    """Of its learning rate, with losses that need no kernel."""
    (case,) = (case for case in regression.cases("cpu") if case.name == name)
    stored = {name: regression._read()[name]}

    def moved(case: object) -> list[str]:
        with use_backend("torch"):
            result = {name: regression.measure(case, "torch")}
        return [line for line in regression.compare(stored, result, "cpu") if line.startswith(name)]

    assert moved(case) == []
    trial = case.trials[0]
    recipe = replace(trial.arm.recipe, learning_rate=1.01 * trial.arm.recipe.learning_rate)
    other = replace(case, trials=(replace(trial, arm=replace(trial.arm, recipe=recipe)),))
    assert moved(other) != []


def test_some_trials_are_renewed_and_the_others_stay(
    regression: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With results as they would be, so that nothing is trained: another value here, and rounding elsewhere."""
    stored = tmp_path / "regression.csv"
    before = "trial,quantity,value,rounding\na/x,test.top1,0.5,0.1\nb/x,test.top1,0.25,0\n"
    stored.write_text(before)
    monkeypatch.setattr(regression, "STORED", stored)
    monkeypatch.setattr(regression, "_measured", lambda _device, globs: {"b/x": {"test.top1": 0.75}})
    monkeypatch.setattr(regression, "_in_a_process", lambda *_: {"b/x": {"test.top1": 0.625}})
    assert regression.main(["--renew", "--only", "b/*"]) == 0
    assert stored.read_text() == before.replace("0.25,0", "0.75,0.12")
