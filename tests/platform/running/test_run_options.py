"""The options of a run: what is refused, and that the command and the function have the same ones."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from topk_platform import RunOptions, UserError
from topk_platform.running import run_options as options
from topk_platform.running.run_options import HEADINGS, help_of
from topk_studies import digits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("workers", 0), ("workers", 1.5), ("checkpoints", -1), ("wait", -1), ("searches", 0)),
        *(("store", " "), ("data", ""), ("address", "nowhere"), ("mixed", 1), ("max_hours", 0)),
        *(("max_gpu_hours", float("inf")), ("only", 3), ("tensorboard", ""), ("mlflow", "")),
    ],
)
def test_a_wrong_value_is_refused_with_the_options_name(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=name):
        RunOptions(**{name: value})


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="'worker': did you mean 'workers'"):
        RunOptions().but(worker=2)


@pytest.mark.parametrize(("option", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_callback_without_its_package_is_refused_by_name(
    option: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "find_spec", lambda name: None if name == package else name)
    with pytest.raises(UserError, match=f"^{option} needs .*: pip install {package}$"):
        RunOptions(**{option: "x"})


def test_each_option_is_described_and_shown_once() -> None:
    names = [field.name for field in fields(RunOptions)]
    assert sorted(names) == sorted(name for group in HEADINGS.values() for name in group)
    assert list(help_of()) == names and all(help_of().values())


def test_a_part_of_a_study_has_its_arms_and_budget() -> None:
    chosen = RunOptions(only="balanced/*", trials=4, seeds=2, searches=2)
    part = chosen.part(chosen.whole(digits()))
    assert {arm.regime.name for arm in part.arms} == {"balanced"}
    assert (part.trials, part.seeds, part.searches) == (4, 2, 2)
