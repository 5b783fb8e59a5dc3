"""What a plan says: the time that is left, and the samples of each regime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

import topk_studies
from topk_platform import Arm, Float, LongTail, Loss, Model, Protocol, Recipe, Regime, Study, grid
from topk_platform.cli.planning import _plan_data, _print_plan
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress
from topk_platform.running.plan import plan
from topk_platform.running.preflight import timing
from topk_platform.running.preflight.recorded_speeds import recorded_seconds


@pytest.fixture(autouse=True)
def hundred_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(arms: Sequence[ArmProgress]) -> dict[str, float]:
        return dict.fromkeys((progress.arm_id for progress in arms), 100.0)

    monkeypatch.setattr(timing, "trial_seconds", seconds)


@pytest.mark.parametrize(
    ("ensemble", "workers", "seconds"), [(1, 1, 1000), (4, 1, 300), (1, 9, 900), (4, 9, 300)]
)
def test_a_plan_counts_trainings_and_those_that_wait_for_one_another(
    ensemble: int, workers: int, seconds: float, tmp_path: Path
) -> None:
    """Eight search trials, one stack after another, then two confirmations at once."""
    loss = Loss("smooth_topk_svm", {"tau": Float(0.1, 10.0)}, {"tau": 1.0})
    protocol = Protocol(ensemble=ensemble)
    arm = Arm(Regime("all", "digits"), Model("linear"), loss, 3, Recipe(4), protocol=protocol)
    planned = plan(Study("s", [arm], topk=(1, 3), trials=8, seeds=2), store=tmp_path, workers=workers)
    assert planned.trial_seconds(planned.arms[0]) == 100 / ensemble
    assert planned.seconds(workers) == pytest.approx(seconds)
    assert planned.seconds() == pytest.approx(100 * (10 if ensemble == 1 else 3))


def digits_as_they_are_and_with_a_tail() -> Study:
    regimes = [Regime("all", "digits"), Regime("again", "digits"), Regime("tail", "digits", (LongTail(10),))]
    arms = grid(regimes, [Model("linear")], [Loss("cross_entropy")], k=3, recipe=Recipe(1))
    return Study("s", arms, topk=(1, 3), seeds=1)


def test_a_plan_shows_the_samples_of_each_regime(tmp_path: Path) -> None:
    """Digits has 1797 images; the first class of a tail has as many images as the rarest class."""
    result = plan(digits_as_they_are_and_with_a_tail(), store=tmp_path, workers=1)
    everything, _, tail = (note.samples for note in result.data.values())
    assert everything.train + everything.validation + everything.test == 1797 and everything.classes == 10
    assert (tail.validation, tail.test) == (everything.validation, everything.test)
    assert (tail.most, tail.fewest) == (everything.fewest, round(everything.fewest / 10))
    shown = [regime.train for regime in _plan_data(result)["samples"]]
    assert shown == [everything.train, everything.train, tail.train] and tail.train < everything.train


@pytest.mark.parametrize("name", ["berrada2018_noise", "sawada2020_cifar100", "search_imagenet"])
def test_a_large_study_is_planned_without_its_data_and_gpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The GPU is asked for first, because the data may be 150 GB."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    study = getattr(topk_studies, name)()
    made = plan(study, store=tmp_path, data=tmp_path / "none")
    _print_plan(Console(width=200), made, (), {})
    out = capsys.readouterr().out
    assert ["cuda" in made.lacking[0], "dataset" in made.lacking[1]] == [True, True]
    assert f"{made.left} trials left" in out and str(study.arms[0].recipe.epochs) in out
    seconds = [made.trial_seconds(arm) for arm in made.arms]
    assert not any(seconds) if name == "sawada2020_cifar100" else min(seconds) > 60
    assert "about 0 s" not in out


def test_a_smaller_part_of_the_images_takes_less_time() -> None:
    study = topk_studies.search_cifar100_fraction()
    arms = [ArmProgress(study, arm, Identity()) for arm in study.arms]
    recorded = recorded_seconds(arms)
    seconds = {arm.arm.regime.name: recorded[arm.arm_id] for arm in arms}
    assert seconds["images-50"] / seconds["images-10"] == pytest.approx(5, rel=0.02)
