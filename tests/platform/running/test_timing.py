"""What a plan extrapolates from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat

import pytest
from torch import Tensor

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
from topk_platform.data import load
from topk_platform.identity import Identity
from topk_platform.running import timing
from topk_platform.search import ArmBoard
from topk_platform.training import Session


@pytest.mark.parametrize(("enough", "steps"), [(0.0, 1), (1e9, 17)])
def test_of_a_long_epoch_the_start_is_timed(
    enough: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that each look at moves on by a second: as many of 17 steps as there is time for, then all of them."""
    regime = Regime("r", "digits")
    study = Study("s", [Arm(regime, Model("linear"), Loss("cross_entropy"), 3, Recipe(2))], topk=(1, 3))

    board = ArmBoard(study, study.arms[0], Identity("c", load(regime).fingerprint))
    session = Session.prepare(board.trial(board.next_slot()))
    seconds = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(seconds)))
    # The watch looks at the clock when it starts and stops, and the steps' end is looked for after each of them.
    assert timing._epoch_seconds(session, enough) == (1 + steps) * 17 / steps
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
    assert timing._guess(session) == pytest.approx(200 * (17 * 0.25 + 0.5))
