"""What a plan says: the time that is left, the samples of each regime, and stacks that are too large."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from made_records import filled
from rich.console import Console

import topk_studies
from topk_platform import Arm, Float, LongTail, Loss, Model, Protocol, Recipe, Regime, Study, grid
from topk_platform.cli.planning import _plan_data, _print_plan
from topk_platform.protocol import ArmProgress
from topk_platform.records.ledger import Ledger
from topk_platform.records.states import StudyState, note_state
from topk_platform.records.storage.lease import Holder
from topk_platform.records.storage.store import Store
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
    assert planned.elapsed == pytest.approx(seconds)
    assert planned.seconds == pytest.approx(100 * (10 if ensemble == 1 else 3))


def digits_as_they_are_and_with_a_tail() -> Study:
    regimes = [Regime("all", "digits"), Regime("again", "digits"), Regime("tail", "digits", (LongTail(10),))]
    arms = grid(regimes, [Model("linear")], [Loss("cross_entropy")], k=3, recipe=Recipe(1))
    return Study("s", arms, topk=(1, 3), seeds=1)


def test_a_plan_shows_the_samples_of_each_regime(tmp_path: Path) -> None:
    """Digits has 1797 images; the first class of a tail has as many images as the rarest class."""
    result = plan(digits_as_they_are_and_with_a_tail(), store=tmp_path, workers=1)
    everything, _, tail = result.samples
    assert everything.train + everything.validation + everything.test == 1797 and everything.classes == 10
    assert (tail.validation, tail.test) == (everything.validation, everything.test)
    assert (tail.most, tail.fewest) == (everything.fewest, round(everything.fewest / 10))
    shown = [regime.train for regime in _plan_data(result, None)["samples"]]
    assert shown == [everything.train, everything.train, tail.train] and tail.train < everything.train


def test_the_estimate_of_a_running_study_replaces_the_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = digits_as_they_are_and_with_a_tail()
    ledger = Ledger.open(Store.open(tmp_path), study.name)
    with ledger.writing(study):
        note_state(ledger.store, StudyState(study.name, (), seconds=750.0))
        _print_plan(Console(width=300), plan(study, store=tmp_path, workers=1))
        out = capsys.readouterr().out
        assert "12 min 30 s" in out and "besides the start of Ray" not in out
        assert plan(study, store=tmp_path, workers=1).running == 750.0
    assert plan(study, store=tmp_path, workers=1).running is None


def test_a_run_whose_driver_may_have_died_elsewhere_comes_with_its_last_sign_of_life(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It held the lease on a machine that was taken away, and nothing has released it since."""
    study = digits_as_they_are_and_with_a_tail()
    ledger = filled(tmp_path, study)
    far = Holder("far", 1, "today", "another machine", "0", "an hour ago")
    ledger.store.write("lease/000000000007.json", json.dumps(dataclasses.asdict(far)).encode())
    for seconds in (750.0, 0.0):
        note_state(ledger.store, StudyState(study.name, (), seconds=seconds))
        made = plan(study, store=tmp_path, workers=1)
        _print_plan(Console(width=300), made)
        assert "an hour ago" in capsys.readouterr().out and _plan_data(made, None)["seen"] == "an hour ago"


@pytest.mark.parametrize(
    ("ensemble", "trials", "searches", "chosen"),
    [(5, 15, 1, ""), (8, 15, 1, "7 of the 15"), (8, 32, 2, ""), (8, 30, 2, "7 of the 15"), (8, 8, 1, "")],
)
def test_stacks_that_leave_the_sampler_too_few_trials_are_named(
    ensemble: int, trials: int, searches: int, chosen: str, tmp_path: Path
) -> None:
    """With eight trials, even single ones would leave the sampler two, so the stacks are not the reason."""
    loss = Loss("smooth_topk_svm", {"tau": Float(0.1, 10.0)}, {"tau": 1.0})
    protocol = Protocol(ensemble=ensemble, searches=searches)
    regimes, losses = [Regime("all", "digits")], [loss, Loss("ldam")]
    arms = grid(regimes, [Model("linear")], losses, k=3, recipe=Recipe(1), protocol=protocol)
    result = plan(Study("s", arms, topk=(1, 3), trials=trials, seeds=searches), store=tmp_path, workers=1)
    assert [chosen in line and "smooth_topk_svm" in line for line in result.crowded] == [True] * bool(chosen)


@pytest.mark.parametrize("name", ["berrada2018_noise", "sawada2020_cifar100", "search_imagenet"])
def test_a_large_study_is_planned_without_its_data_and_gpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The GPU is asked for first, because the data may be 150 GB."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    study = getattr(topk_studies, name)()
    begun: list[int] = []
    made = plan(study, store=tmp_path, data=tmp_path / "none", begun=lambda first: begun.append(first.left))
    _print_plan(Console(width=200), made)
    out = capsys.readouterr().out
    assert ["cuda" in made.lacking[0], "dataset" in made.lacking[1]] == [True, True]
    assert (
        begun == [made.left] and f"{made.left} trials left" in out and str(study.arms[0].recipe.epochs) in out
    )
    known = {arm.arm.name: made.trial_seconds(arm) for arm in made.arms if arm.arm.name not in made.untimed}
    assert len(made.untimed) == (len(made.arms) if name == "sawada2020_cifar100" else 0)
    assert all(seconds > 60 for seconds in known.values()) and ("about 0 s" not in out)


def test_a_smaller_part_of_the_images_takes_less_time() -> None:
    arms = {arm.regime.name: arm for arm in topk_studies.search_cifar100_fraction().arms}
    seconds = recorded_seconds(arms)
    assert seconds["images-50"] / seconds["images-10"] == pytest.approx(5, rel=0.02)
