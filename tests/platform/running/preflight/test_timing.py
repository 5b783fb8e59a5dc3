"""What a plan extrapolates from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat

import pytest
import torch
from made_studies import small_study
from torch import Tensor

from topk_platform import Arm, Loss, Model, PerClass, Recipe, Regime, Study
from topk_platform.data import load
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress
from topk_platform.running.preflight import timing
from topk_platform.training import Session


@pytest.mark.parametrize(("enough", "steps"), [(0.0, 1), (0.6, 3), (10.0, 16)])
def test_of_long_work_a_part_is_timed_and_what_is_done_once_is_not_extrapolated(
    enough: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that work moves on. An epoch has 17 steps; the first step and the first validation take 10 s each."""
    session = _session(Recipe(200, batch_size=64))
    whole, now, scored = session.dataset.validation, 0.0, list[int]()

    def slow_at_first(work: Callable[..., Tensor], usual: float) -> Callable[..., Tensor]:
        costs = chain([10.0], repeat(usual))

        def timed(*arguments: Tensor) -> Tensor:
            nonlocal now
            now += next(costs)
            scored.append(len(session.dataset.validation))
            return work(*arguments)

        return timed

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(session, "_step", slow_at_first(session._step, 0.25))
    monkeypatch.setattr(session, "validate", slow_at_first(session.validate, 0.5))
    monkeypatch.setattr(timing, "_STEPS_SECONDS", enough)
    pace = timing._pace(session)
    part = min(len(whole), 64 * (1 + steps))
    assert (session.step, scored[1], scored[-1]) == (1 + steps, 64, part)
    assert session.dataset.validation is whole
    assert (pace.step, pace.validation) == pytest.approx((0.25, 0.5 * len(whole) / part))
    assert pace.seconds(session.recipe, samples=1078) == pytest.approx(
        200 * (17 * pace.step + pace.validation)
    )


def test_arms_that_share_data_network_batches_and_loss_are_timed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two regimes by one measurement, told by their epochs and steps; another network and another loss by their own.

    They are timed with a worker's number of threads.
    """
    study = Study(
        "s",
        [
            Arm(regime, model, Loss(loss), 3, Recipe(epochs, evaluate_every=2))
            for regime in (Regime("all", "digits"), Regime("few", "digits", conditions=(PerClass(10),)))
            for model, epochs in ((Model("linear"), 4), (Model("mlp"), 6))
            for loss in ("cross_entropy", "focal")
        ],
        topk=(1, 3),
    )
    fingerprint = load(study.arms[0].regime).fingerprint
    arms = [ArmProgress(study, arm, Identity("c", fingerprint)) for arm in study.arms]
    timed: list[str] = []

    def pace(session: Session) -> timing._Pace:
        timed.append(session.trial.arm.name)
        assert torch.get_num_threads() == study.threads != threads
        return timing._Pace(step=float(10 ** len(timed)), validation=0.5)

    monkeypatch.setattr(timing, "_pace", pace)
    before, threads = torch.get_num_threads(), 1 + study.threads
    torch.set_num_threads(threads)
    try:
        seconds = timing.trial_seconds(arms)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert timed == [
        f"all/{model}/{loss}" for loss in ("cross_entropy", "focal") for model in ("linear", "mlp")
    ]
    names = {progress.arm_id: progress.arm.name for progress in arms}
    # 1,078 training images are 17 batches of 64, 100 are 2.
    assert {names[i]: value for i, value in seconds.items()} == {
        f"{regime}/{model}/{loss}": epochs * steps * 10 ** (1 + index + 2 * later) + epochs // 2 * 0.5
        for regime, steps in (("all", 17), ("few", 2))
        for index, (model, epochs) in enumerate((("linear", 4), ("mlp", 6)))
        for later, loss in enumerate(("cross_entropy", "focal"))
    }


def test_without_time_for_every_loss_another_one_of_the_same_network_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that each look moves on by 15 of the 40 seconds: two measurements, one of each network."""
    arms = _arms(models=("linear", "mlp"), losses=("cross_entropy", "focal"))
    clock = iter(range(0, 1000, 15))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(timing, "_MEASURING_SECONDS", 40.0)
    timed: list[str] = []

    def pace(session: Session) -> timing._Pace:
        timed.append(session.trial.arm.name)
        return timing._Pace(step=float(len(timed)), validation=0.0)

    monkeypatch.setattr(timing, "_pace", pace)
    seconds = timing.trial_seconds(arms)
    assert timed == ["all/linear/cross_entropy", "all/mlp/cross_entropy"]
    assert [seconds[progress.arm_id] for progress in arms] == [34.0, 34.0, 68.0, 68.0]


def _arms(models: Sequence[str], losses: Sequence[str], recipe: Recipe | None = None) -> list[ArmProgress]:
    regime = Regime("all", "digits")
    study = small_study(*losses, regimes=[regime], models=models, recipe=recipe or Recipe(2))
    identity = Identity("c", load(regime).fingerprint)
    return [ArmProgress(study, arm, identity) for arm in study.arms]


def _session(recipe: Recipe) -> Session:
    (progress,) = _arms(["linear"], ["cross_entropy"], recipe)
    return Session.prepare(progress.trial(progress.next_slot()))
