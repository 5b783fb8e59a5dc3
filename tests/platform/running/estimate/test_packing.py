"""How many trials share a GPU that leave it open; what they take of its memory is made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from topk_platform import Arm, Choice, Float, Int, Loss, Model, Recipe, Regime, Study
from topk_platform.data import load
from topk_platform.errors import UserError
from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard, Board
from topk_platform.running.cluster.capacity import trial_resources
from topk_platform.running.estimate import packing as packing_module
from topk_platform.running.estimate.packing import HEAD_ROOM, Measured, largest_trials, measure, packing
from topk_platform.running.machine.devices import OWN_BYTES, memory_part
from topk_platform.specs import Trial

GIB = 2**30


def a_study(*losses: Loss, **more: Any) -> Study:
    recipe = Recipe(epochs=1, batch_size=64)
    arms = [
        Arm(Regime("r", "digits"), Model("linear"), loss, 3, recipe)
        for loss in losses or [Loss("cross_entropy")]
    ]
    return Study("s", arms, topk=(1, 3), **more)


def identities(study: Study) -> dict[str, Identity]:
    data = load(study.arms[0].regime).fingerprint
    return {study.arm_id(arm): Identity("code", data) for arm in study.arms}


@pytest.mark.parametrize("gib", [8, 24, 80, 141])
@pytest.mark.parametrize("mib", [50, 700, 2000, 9000, 30_000])
def test_each_has_room_for_what_it_took_and_more_within_its_share(mib: int, gib: int) -> None:
    free, peak = gib * GIB, mib * 2**20
    result = packing([Measured(free, {"a": peak})])
    if result.trials > 1:
        assert memory_part(result.share, free) * free >= peak * (1 + 0.9 * HEAD_ROOM)
        assert result.trials * (peak * (1 + HEAD_ROOM) + OWN_BYTES) <= free
    else:
        assert 2 * (peak * (1 + HEAD_ROOM) + OWN_BYTES) > free


def test_the_largest_arm_on_the_smallest_gpu_decides() -> None:
    measured = [Measured(80 * GIB, {"a": GIB, "b": 4 * GIB}), Measured(16 * GIB, {"a": GIB, "b": 4 * GIB})]
    result = packing(measured)
    assert (result.trials, result.arm, result.free) == (2, "b", 16 * GIB)
    assert str(result) == "2 trials share a GPU: b takes 4.0 of 16.0 GiB"
    assert str(packing([Measured(16 * GIB, {"a": None})])) == "1 trial has a GPU: a takes more of 16.0 GiB"


@pytest.mark.parametrize("trials", range(1, 60))
def test_ray_puts_as_many_on_a_gpu_as_there_are_shares_of_it(trials: int) -> None:
    share = packing_module.Packing(trials, "a", 0, 0).share
    needed = trial_resources(a_study(device="cuda", gpus=share))["GPU"]
    units = round(10_000 * needed)
    assert abs(units - 10_000 * needed) < 1e-6 and 10_000 // units == trials


def test_what_is_measured_are_the_largest_values_of_whole_numbers_of_arms_with_something_left() -> None:
    searched = Loss(
        "noised_topk_hinge",
        {
            "samples": Choice((None, 1, 10)),
            "epsilon": Float(0.01, 10, when={"samples": (1, 10)}),
            "batch_size": Int(16, 128),
        },
        {"samples": None, "batch_size": 32},
    )
    study = a_study(Loss("cross_entropy"), searched, device="cuda", gpus="auto", trials=1, seeds=1)
    known = identities(study)
    board = Board(ArmBoard(study, arm, known[study.arm_id(arm)]) for arm in study.arms)
    first, second = largest_trials(study, board, known)
    assert first.values == {}
    assert second.values == {"samples": 10, "epsilon": 0.01, "batch_size": 128}
    second.setting  # noqa: B018 - it can be trained with
    left = Board([ArmBoard(study, study.arms[1], known[study.arm_id(study.arms[1])])])
    assert largest_trials(study, left, known) == [second]


class Gpu:
    """A GPU of 10 GiB that a process takes so many bytes of for a sample."""

    def __init__(self, patch: pytest.MonkeyPatch, bytes_a_sample: int) -> None:
        self.each, self.peak, self.steps = bytes_a_sample, 0, list[Mapping[str, Any]]()
        patch.setattr(torch.cuda, "mem_get_info", lambda: (10 * GIB, 10 * GIB))
        patch.setattr(torch.cuda, "empty_cache", lambda: None)
        patch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)
        patch.setattr(torch.cuda, "max_memory_reserved", lambda: self.peak)
        patch.setattr(packing_module, "take_step", self.step)
        patch.setattr(packing_module, "take_scores", lambda trial: None)

    def reset(self) -> None:
        self.peak = 0

    def step(self, trial: Trial, size: int, parts: int) -> None:
        self.steps.append(dict(trial.values))
        if size == 13:
            raise ValueError("unlucky")
        self.peak = max(self.peak, self.each * size // parts)
        if self.peak > 10 * GIB:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")


def measured(study: Study) -> Measured:
    known = identities(study)
    board = Board(ArmBoard(study, arm, known[study.arm_id(arm)]) for arm in study.arms)
    return measure([trial.to_json() for trial in largest_trials(study, board, known)], "data")


def test_a_step_of_each_kind_of_arm_is_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, GIB // 32)
    large = Loss("cross_entropy", fixed={"batch_size": 128}, label="large")
    result = measured(a_study(large, Loss("cross_entropy"), device="cuda", gpus="auto"))
    assert result == Measured(10 * GIB, {"r/linear/large": 4 * GIB, "r/linear/cross_entropy": 2 * GIB})
    assert len(gpu.steps) == 2
    assert packing([result]).trials == 1


def test_parts_of_a_batch_are_taken_as_the_recipe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu(monkeypatch, GIB // 32)
    study = a_study(device="cuda", gpus="auto")
    arm = replace(study.arms[0], recipe=replace(study.arms[0].recipe, accumulate=4))
    assert measured(replace(study, arms=(arm,))).peaks == {arm.name: GIB // 2}


def test_one_that_does_not_fit_has_the_gpu_alone_and_one_that_fails_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Gpu(monkeypatch, GIB)
    study = a_study(device="cuda", gpus="auto")
    assert measured(study).peaks == {"r/linear/cross_entropy": None}
    assert packing([measured(study)]).trials == 1
    unlucky = a_study(Loss("cross_entropy", fixed={"batch_size": 13}), device="cuda", gpus="auto")
    with pytest.raises(UserError, match="gpus='auto' cannot measure its memory, give gpus a number: unlucky"):
        measured(unlucky)
