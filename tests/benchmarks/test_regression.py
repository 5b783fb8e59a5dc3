"""`make regression`: what it compares, that it finds what moved and whose version is to be raised, and its bounds."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts import loaded
from torch import Tensor, nn

import topk_losses as tl
from topk_platform import versions
from topk_platform.data import DATASETS, Population, conditions
from topk_platform.specs import LabelNoise, Recipe
from topk_platform.training.loss_table import LOSSES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
regression = loaded(BENCHMARKS / "regression.py", "regression")
ROWS = "trial,quantity,value,rounding\n"


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Stored results of trials' first epoch, each of a version of its loss, and what the trials give now."""

    present = versions.VERSIONS["loss focal"]

    def store(values: Mapping[str, float], now: Mapping[str, float], behind: int = 0) -> Path:
        arms = regression._arms()
        file = tmp_path / "regression.csv"
        file.write_text(ROWS + "".join(f"{name},train_loss.1,{value},0\n" for name, value in values.items()))
        monkeypatch.setattr(regression, "STORED", file)
        monkeypatch.setattr(regression, "STORED_VERSIONS", tmp_path / "versions.csv")
        of = {name: versions.version_of(arms.get(name, arms["clean/focal"])) for name in values}
        lines = "".join(f'{name},"{version}"\n' for name, version in of.items())
        lines = lines.replace(f"focal {present}", f"focal {present - behind}")
        (tmp_path / "versions.csv").write_text("trial,versions\n" + lines)

        def measured(names: Any, *_: Any, **__: Any) -> dict[str, dict[str, float]]:
            return {name: {"train_loss.1": now[name]} for name in names if name in now}

        monkeypatch.setattr(regression, "_measured", measured)
        monkeypatch.setattr(regression, "_in_a_process", measured)
        return file

    return store


def test_all_trials_are_stored_for_the_versions_that_their_components_have() -> None:
    arms, results = regression._arms(), regression._read()
    assert arms.keys() == results.keys()
    assert [name for name, trial in results.items() if not trial.is_of(arms[name])] == []
    assert arms.keys() >= {
        f"{regime}/{loss}" for loss in LOSSES for regime in ("clean", "noise", "tail", "fraction")
    }


@pytest.mark.slow  # for it writes the files of all datasets
def test_its_bounds_hold_for_all_trials() -> None:
    """No value comes of more steps, no accuracy of fewer samples, than the floors of tolerances count on."""
    for case in regression.cases():
        recipe, source = case.arm.recipe, sys.modules["regression_trials"].source_of(case)
        data = source.example if isinstance(source, Population) else source
        assert min(len(data.validation), len(data.test)) >= regression.SAMPLES
        if not case.arm.regime.conditions:  # which only take samples away
            assert recipe.epochs * math.ceil(len(data.train) / recipe.batch_size) <= regression.STEPS


def test_what_moved_is_named_with_how_far_it_may() -> None:
    name = "clean/focal"
    values = {"train_loss.1": regression.Stored(2.0, 0.001), "test.top1": regression.Stored(0.5, 0.0)}
    trial = regression.StoredTrial(versions.version_of(regression._arms()[name]), values)

    def compared(loss: float, top1: float) -> list[str]:
        result: list[str] = regression.compare(
            {name: trial}, {name: {"train_loss.1": loss, "test.top1": top1}}, "cpu"
        )
        return result

    assert compared(2.009, 0.5 + 1.9 / regression.SAMPLES) == []
    assert compared(2.02, math.nan)[:2] == [
        "clean/focal: test.top1 was 0.5, is nan: moved by +nan, where 0.02 is allowed",
        "clean/focal: train_loss.1 was 2, is 2.02: moved by +0.02, where 0.01 is allowed",
    ]
    (missing, _) = regression.compare({name: trial}, {name: {"train_loss.1": 2.0}}, "cpu")
    assert missing == "clean/focal: test.top1 is missing"


def test_what_is_drawn_on_the_device_is_not_compared_on_a_gpu() -> None:
    left_out = {case.name for case in regression.cases() if not regression._comparable(case, "cuda", "auto")}
    assert {"augmented/cutmix", "clean/noised_topk_hinge"} <= left_out
    assert not left_out & {"clean/cross_entropy", "network/resnet18_small", "recipe/schedule"}


@pytest.mark.parametrize(
    ("moved", "unmoved", "named"),
    [
        (["clean/focal", "noise/focal"], ["clean/ldam", "noise/ldam"], ["loss focal"]),
        (["clean/focal", "clean/ldam", "noise/ldam"], ["clean/autkc"], ["loss focal", "loss ldam"]),
        (["noise/focal", "noise/ldam"], ["clean/focal", "clean/ldam"], ["condition LabelNoise"]),
        (["clean/focal", "noise/ldam"], ["clean/ldam"], ["condition LabelNoise", "loss focal"]),
        (["clean/focal"], ["noise/focal", "clean/ldam"], ["engine"]),  # a part of the loss, or of the engine
        (["clean/focal", "noise/focal"], [], ["engine"]),
        (["ring/topk_transition", "network/feature_head"], ["clean/topk_transition"], ["dataset ring"]),
        (["network/feature_head"], ["ring/cross_entropy"], ["network feature_head"]),
        (["network/feature_head"], ["ring/topk_transition"], ["loss cross_entropy or network feature_head"]),
    ],
)
def test_the_smallest_set_of_components_that_explains_what_moved_is_to_be_raised(
    moved: list[str], unmoved: list[str], named: list[str]
) -> None:
    assert regression.to_raise(moved, unmoved) == named


class WrongGradient(nn.Module):
    """The focal loss, whose gradient is a hundredth too long."""

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = tl.Focal(2.0)(scores, target)
        return loss + 0.01 * (loss - loss.detach())


def _wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "focal", WrongGradient)


def _other_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another default, with which the trials' recipes are made anew."""
    defaults = tuple(0.91 if value == 0.9 else value for value in Recipe.__init__.__defaults__ or ())
    monkeypatch.setattr(Recipe.__init__, "__defaults__", defaults)
    fresh = loaded(BENCHMARKS / "regression_trials.py", "fresh_trials")
    monkeypatch.setattr(regression, "cases", fresh.cases)


def _other_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Label noise of which one number is drawn beforehand."""
    usual = conditions._CONDITIONS[LabelNoise]

    def later(dataset: Any, condition: Any, generator: torch.Generator) -> Any:
        torch.rand(1, generator=generator)
        return usual(dataset, condition, generator)

    monkeypatch.setitem(conditions._CONDITIONS, LabelNoise, later)


FEW = tuple(
    f"{regime}/{loss}" for regime in ("clean", "noise", "tail") for loss in ("focal", "cross_entropy")
)
SOME = (*FEW, "recipe/adam", "recipe/warmup", "recipe/milestones")


@pytest.mark.parametrize(
    ("change", "component"),
    [
        (None, ""),
        (_wrong_gradient, "loss focal"),
        (_other_momentum, "engine"),
        (_other_stream, "condition LabelNoise"),
    ],
)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_planted_fault_is_caught_and_its_component_is_named(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch], None] | None,
    component: str,
    every: bool,
) -> None:
    """Among some trials with losses in plain torch; if slow, among all on digits and on a ring."""
    if change is not None:
        change(monkeypatch)
    drawn = [c for c in regression.cases() if c.arm.regime.dataset in ("digits", "ring") and not c.noised]
    chosen = drawn if every else [case for case in regression.cases() if case.name in SOME]
    result = {case.name: regression.measure(case, "torch") for case in chosen}
    kept = {name: trial for name, trial in regression._read().items() if name in result}
    red = regression.compare(kept, result, "cpu")
    assert len(chosen) > (100 if every else 8)
    if change is None:
        assert red == []
    else:
        assert f"raise the version of {component} in topk_platform/versions.py" in red[-1]


def test_an_entry_that_no_trial_uses_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "unheard", DATASETS["digits"])
    assert regression.compare({}, {}, "cpu") == [
        "dataset unheard: no trial uses it, so nothing guards its version"
    ]


def test_results_of_another_version_are_red_until_they_are_stored(
    stored: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """With results as they would be, so that nothing is trained. Rows of other trials stay as they are."""
    before, now = {"clean/ldam": 1.5, "noise/focal": 2.0}, {"clean/ldam": 1.5, "noise/focal": 2.5}
    file = stored(before, now, behind=1)
    only = ["--device", "cpu", "--only", "clean/ldam", "noise/focal"]
    assert regression.main(only) == 1
    present = versions.VERSIONS["loss focal"]
    line = f"loss focal: version {present - 1}, now {present}: not stored, 1 trials"
    assert line in capsys.readouterr().out
    assert regression.main(["--renew", *only]) == 0
    assert file.read_text() == f"{ROWS}clean/ldam,train_loss.1,1.5,0\nnoise/focal,train_loss.1,2.5,0\n"
    assert regression.main(only) == 0


def test_new_trials_are_added_and_rows_of_trials_that_are_gone_are_taken_out(
    stored: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = stored({"clean/ldam": 1.5, "clean/gone": 1.0}, {"clean/focal": 3.0})
    assert regression.main(["--device", "cpu", "--only", "clean/gone", "clean/focal"]) == 1
    out = capsys.readouterr().out
    assert "clean/gone: is stored" in out and "clean/focal: not among the stored results" in out
    assert regression.main(["--renew", "--only", "clean/focal"]) == 0
    assert file.read_text() == f"{ROWS}clean/focal,train_loss.1,3,0\nclean/ldam,train_loss.1,1.5,0\n"


@pytest.mark.parametrize(
    ("behind", "reason"),
    [(0, "raise the version of loss focal"), (-1, "loss focal: its version must not be lowered")],
)
def test_results_of_an_existing_version_are_not_overwritten(
    stored: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    behind: int,
    reason: str,
) -> None:
    file = stored({"noise/ldam": 1.5, "noise/focal": 2.0}, {"noise/ldam": 1.5, "noise/focal": 2.5}, behind)
    before = file.read_text()
    assert regression.main(["--renew"]) == 1
    assert reason in capsys.readouterr().out
    assert file.read_text() == before
