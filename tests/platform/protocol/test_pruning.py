"""Rules of stopping against Optuna's, step by step, and what of them travels with a trial."""

from __future__ import annotations

import random
from dataclasses import replace

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_studies import searched, small_study

from topk_platform import OwnPruner, Protocol, Quantile, Recipe, UserError
from topk_platform.protocol import stopping_values
from topk_platform.protocol.pruning import rung_epochs
from topk_platform.protocol.search_progress import Ended
from topk_platform.protocol.suggest import check_sampler
from topk_platform.specs import EpochRecord
from topk_platform.training.member import Member
from topk_platform.versions import version_of

EPOCHS = 8
RECIPE = Recipe(EPOCHS)


def curve_of(draw: random.Random) -> dict[int, float]:
    return {epoch: draw.randrange(20) / 32 for epoch in range(1, EPOCHS + 1)}


def stopped_at(below: tuple[tuple[int, float], ...], curve: dict[int, float]) -> int | None:
    """The epoch that a training with such a curve is stopped after, by the loop's own code."""
    member = Member(_Trial(below))  # type: ignore[arg-type]
    for epoch, value in curve.items():
        member.note(EpochRecord(epoch, 0.0, {"top1": value}, 0.0, 0.0), finite=True)
        if member.status is not None:
            return epoch
    return None


class _Trial:
    def __init__(self, below: tuple[tuple[int, float], ...]) -> None:
        self.stop_below, self.arm = below, self
        self.metric = "top1"


def optunas(
    pruner: optuna.pruners.BasePruner, past: list[Ended], curve: dict[int, float], rungs: list[int]
) -> int | None:
    """The epoch that Optuna stops a training after, when asked at the rungs."""
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for ended in past:
        trial = study.ask()
        for epoch, value in ended.curve.items():
            trial.report(value, epoch)
        if ended.status == "completed":
            study.tell(trial, ended.objective)
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    trial = study.ask()
    for epoch, value in curve.items():
        trial.report(value, epoch)
        if trial.should_prune() and epoch in rungs:
            return epoch
    return None


@given(
    seed=st.integers(0, 10**6),
    number=st.integers(0, 9),
    startup=st.integers(1, 4),
    share=st.sampled_from([0.25, 0.5, 0.75]),
)
def test_a_quantile_stops_whom_optunas_percentile_stops(
    seed: int, number: int, startup: int, share: float
) -> None:
    """Of one trial's values Optuna looks at the best so far, we at the last: rising curves have no difference."""
    draw, pruner = random.Random(seed), Quantile((0.25, 0.5, 0.75), share, startup)
    past = [
        Ended(n, {}, "completed", dict(zip(range(1, 9), sorted(curve_of(draw).values()), strict=True)))
        for n in range(number)
    ]
    curve = dict(zip(range(1, 9), sorted(curve_of(draw).values()), strict=True))
    theirs = optunas(optuna.pruners.PercentilePruner(100 * (1 - share), startup, 0), past, curve, [2, 4, 6])
    assert stopped_at(stopping_values(pruner, RECIPE, past), curve) == theirs


def test_rungs_that_are_whole_epochs_but_for_rounding_are_these_epochs() -> None:
    assert rung_epochs((0.07, 0.14, 0.55), Recipe(100)) == [7, 14, 55]
    assert rung_epochs((1e-12,), Recipe(10)) == [1]


def threshold(history: list[Ended], rung: int) -> float | None:
    reached = [trial.curve[rung] for trial in history if rung in trial.curve]
    return max(reached) - 0.25 if reached else None


def test_a_rule_of_ones_own_gives_the_thresholds() -> None:
    own = OwnPruner(threshold, rungs=(0.25, 0.75))  # type: ignore[arg-type]
    past = [Ended(0, {}, "completed", {2: 0.5, 6: 0.75}), Ended(1, {}, "pruned", {2: 0.75})]
    assert stopping_values(own, RECIPE, past) == ((2, 0.5), (6, 0.5))
    assert stopping_values(own, RECIPE, ()) == ()
    (arm,) = small_study(searched(), recipe=RECIPE, protocol=Protocol(pruner=own)).arms
    assert own.reference in version_of(arm), "an edit of the rule starts the arm anew"
    broken = replace(arm, protocol=Protocol(pruner=OwnPruner(f"{__name__}:optunas")))
    with pytest.raises(UserError, match=r"pruner .*optunas"):
        check_sampler(broken, 4)
