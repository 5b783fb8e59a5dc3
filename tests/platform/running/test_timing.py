"""What a plan extrapolates from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat

import pytest
from torch import Tensor

from topk_platform import Arm, Loss, Model, PerClass, Recipe, Regime, Study
from topk_platform.data import load
from topk_platform.identity import Identity
from topk_platform.running import timing
from topk_platform.search import ArmBoard
from topk_platform.training import Session


@pytest.mark.parametrize(("enough", "steps"), [(0.0, 1), (1e9, 17)])
def test_of_a_long_epoch_the_start_is_timed(
    enough: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that each look at moves on by a second: as many of 17 steps as there is time for, or all of them."""
    regime = Regime("r", "digits")
    study = Study("s", [Arm(regime, Model("linear"), Loss("cross_entropy"), 3, Recipe(2))], topk=(1, 3))

    board = ArmBoard(study, study.arms[0], Identity("c", load(regime).fingerprint))
    session = Session.prepare(board.trial(board.next_slot()))
    seconds = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(seconds)))
    # The watch looks at the clock when it starts and stops, and the steps' end is looked for after each of them.
    assert timing._step_seconds(session, enough) == (1 + steps) / steps
    assert session.step == steps


def test_of_a_long_validation_a_part_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one step of 64: 64 samples are scored, in a second by the clock, and the split stays what it was."""
    regime = Regime("r", "digits")
    study = Study(
        "s", [Arm(regime, Model("linear"), Loss("cross_entropy"), 3, Recipe(2, batch_size=64))], topk=(1, 3)
    )
    board = ArmBoard(study, study.arms[0], Identity("c", load(regime).fingerprint))
    session = Session.prepare(board.trial(board.next_slot()))
    whole = session.dataset.validation
    session.advance(lambda: True)
    seen: list[int] = []
    validate = session.validate

    def counted() -> Tensor:
        seen.append(len(session.dataset.validation))
        return validate()

    monkeypatch.setattr(session, "validate", counted)
    seconds = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(seconds)))
    assert timing._validation_seconds(session) == len(whole) / 64
    assert seen == [64] and session.dataset.validation is whole


def test_what_is_done_once_is_not_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that work moves on: 17 steps and one validation an epoch, of which the first takes 10 s each."""
    regime = Regime("r", "digits")
    study = Study("s", [Arm(regime, Model("linear"), Loss("cross_entropy"), 3, Recipe(200))], topk=(1, 3))
    board = ArmBoard(study, study.arms[0], Identity("c", load(regime).fingerprint))
    session = Session.prepare(board.trial(board.next_slot()))
    now = 0.0

    def slow_at_first(work: Callable[..., Tensor], usual: float) -> Callable[..., Tensor]:
        costs = chain([10.0], repeat(usual))

        def timed(*arguments: Tensor) -> Tensor:
            nonlocal now
            now += next(costs)
            return work(*arguments)

        return timed

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(session, "_step", slow_at_first(session._step, 0.25))
    monkeypatch.setattr(session, "validate", slow_at_first(session.validate, 0.5))
    assert session.epoch_steps == 17
    monkeypatch.setattr(timing, "_STEPS_SECONDS", 10.0)  # the whole epoch
    pace = timing._pace(session)
    assert (pace.step, pace.validation) == pytest.approx((0.25, 0.5))
    assert pace.seconds(session.recipe, steps=17) == pytest.approx(200 * (17 * 0.25 + 0.5))


def test_arms_that_share_data_network_and_batches_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two losses and two regimes by one measurement, told by their epochs and steps; another network by its own."""
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
    boards = [ArmBoard(study, arm, Identity("c", fingerprint)) for arm in study.arms]
    timed: list[str] = []

    def pace(session: Session) -> timing._Pace:
        timed.append(session.trial.arm.name)
        return timing._Pace(step=float(10 ** len(timed)), validation=0.5)

    monkeypatch.setattr(timing, "_pace", pace)
    seconds = timing.trial_seconds(boards)
    assert timed == ["all/linear/cross_entropy", "all/mlp/cross_entropy"]
    names = {board.arm_id: board.arm.name for board in boards}
    # 1,078 training images are 17 batches of 64, 100 are 2.
    wanted = {
        "all/linear": 4 * 17 * 10 + 2 * 0.5,
        "all/mlp": 6 * 17 * 100 + 3 * 0.5,
        "few/linear": 4 * 2 * 10 + 2 * 0.5,
        "few/mlp": 6 * 2 * 100 + 3 * 0.5,
    }
    assert {names[i]: value for i, value in seconds.items()} == {
        f"{place}/{loss}": value for place, value in wanted.items() for loss in ("cross_entropy", "focal")
    }
