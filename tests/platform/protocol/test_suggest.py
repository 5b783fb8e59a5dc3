from __future__ import annotations

import pytest

from topk_platform import TPE, Choice, Float, Int, Loss, Protocol, Quantile, Recipe
from topk_platform.protocol import stopping_values
from topk_platform.protocol.search_progress import Ended
from topk_platform.protocol.suggest import frozen_trial, suggest, to_optuna
from topk_platform.specs import Status

LOSS = Loss(
    "smooth_topk_svm",
    {"learning_rate": Float(0.001, 1, log=True), "samples": Int(1, 50, log=True), "head": Choice(("a", "b"))},
    {"learning_rate": 0.1, "samples": 10, "head": "a"},
)


def test_the_first_trial_is_the_papers_then_random_then_tpe() -> None:
    history = [
        Ended(n, suggest("a", LOSS, Protocol(TPE(random=2)), n, []), "completed", {1: n / 10})
        for n in range(8)
    ]
    assert history[0].values == LOSS.first
    protocol = Protocol(TPE(random=2))
    for n in (1, 2):  # random ones know nothing of the history
        assert suggest("a", LOSS, protocol, n, history) == suggest("a", LOSS, protocol, n, [])
    tpe = suggest("a", LOSS, protocol, 5, history)
    assert tpe == suggest("a", LOSS, protocol, 5, list(reversed(history)))
    flipped = [Ended(e.number, e.values, e.status, {1: -e.objective}) for e in history]
    assert tpe != suggest("a", LOSS, protocol, 5, flipped)
    assert suggest("a", LOSS, protocol, 4, []) != suggest("b", LOSS, protocol, 4, [])


@pytest.mark.parametrize(
    ("status", "state", "curve"),
    [
        ("completed", "COMPLETE", {}),
        ("pruned", "PRUNED", {1: 0.3}),
        ("failed", "PRUNED", {}),
        ("diverged", "PRUNED", {}),
    ],
)
def test_optuna_gets_each_trial_as_it_ended(status: Status, state: str, curve: dict[int, float]) -> None:
    trial = frozen_trial(Ended(3, LOSS.first, status, {1: 0.3}), to_optuna(LOSS.space), {})
    assert trial.state.name == state
    assert trial.intermediate_values == curve
    assert trial.value == (0.3 if status == "completed" else None)


def test_crashes_teach_the_sampler() -> None:
    """Half the range crashes. Over 20 arms TPE goes there less often than the half that chance would."""
    loss = Loss("l", {"x": Float(0, 1)}, {"x": 0.9})
    crashed = total = 0
    for arm in range(20):
        history: list[Ended] = []
        for n in range(20):
            values = suggest(str(arm), loss, Protocol(TPE(random=5)), n, history)
            bad = float(values["x"]) > 0.5  # type: ignore[arg-type]
            history.append(Ended(n, values, "failed" if bad else "completed", {} if bad else {1: 0.5}))
            if n > 5:
                crashed, total = crashed + bad, total + 1
    # 280 suggestions: by chance 140 ± 17 (two standard deviations).
    assert crashed < 100


def test_at_later_rungs_a_trial_that_stopped_early_has_what_it_had_last() -> None:
    """Those that were pruned or diverged have nothing there."""
    history = [Ended(n, {}, "completed", {1: 0.9, 2: n / 10}, selected=0.9) for n in range(4)]
    history.append(Ended(4, {}, "pruned", {1: 0.5, 2: 0.0}))
    history += [Ended(5, {}, "completed", {1: 0.5, 2: 0.6, 6: 1.0}), Ended(6, {}, "diverged", {})]
    pruning = Quantile(rungs=(0.25, 0.75), quantile=0.5, startup=5)
    assert stopping_values(pruning, Recipe(epochs=8), history) == ((2, 0.15), (6, 0.2))
    late = Quantile(rungs=(0.75,), quantile=0.5, startup=6)
    assert stopping_values(late, Recipe(epochs=8), history) == ()
