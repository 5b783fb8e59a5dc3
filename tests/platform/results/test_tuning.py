"""How many trials were enough, which parameters matter, and what was chosen at an end of its range."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from topk_platform import TPE, Arm, Choice, Float, Int, Loss, Model, Protocol, Recipe, Regime, Study
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.records.history import ArmHistory, results_of
from topk_platform.results import tuning as module
from topk_platform.results.tuning import ArmTuning, edges
from topk_platform.specs import Dimension, Scalar
from topk_platform.training.losses import build_loss

SPACE = {"tau": Float(0.01, 10, log=True), "unused": Float(0, 1), "batch_size": Choice((16, 32))}
FIRST = {"tau": 1.0, "unused": 0.5, "batch_size": 16}


def an_arm(random: int = 40) -> Arm:
    loss = Loss("smooth_topk_svm", SPACE, FIRST)
    protocol = Protocol(TPE(random=random))
    return Arm(Regime("r", "digits"), Model("mlp"), loss, 3, Recipe(1), protocol=protocol)


def history_of(arm: Arm, results: Sequence[float], statuses: Sequence[str] = ()) -> ArmHistory:
    """Trials of random values whose result is as given; the first has the study's own."""
    rng = np.random.default_rng(0)
    rows, curves = {}, {}
    for number, result in enumerate(results):
        tau, unused, batch = 10 ** rng.uniform(-2, 1), rng.random(), int(rng.choice([16, 32]))
        drawn = {"tau": tau, "unused": unused, "batch_size": batch}
        status = statuses[number] if number < len(statuses) else "completed"
        rows[number] = {
            "key": f"k{number}",
            "number": number,
            "status": status,
            "values": json.dumps(drawn if number else FIRST),
            f"validation.{arm.metric}": result if status == "completed" else None,
        }
        curves[f"k{number}"] = {1: result} if status == "pruned" else {}
    return ArmHistory(arm, rows, curves=curves)  # type: ignore[arg-type]


def tuned(history: ArmHistory, trials: int) -> ArmTuning:
    study = Study("s", [history.arm], topk=(1, 3), trials=trials)
    (results,) = results_of(study, {study.arm_id(history.arm): history}).values()
    return module._tuned(results)


def test_lost_trials_count_as_nothing_and_stopped_ones_with_their_last_validation() -> None:
    results = [0.5, 0.9, *([0.6] * 4)]
    result = tuned(history_of(an_arm(), results, ["completed", "diverged", "pruned"]), 6)
    assert result.trace == (0.5, 0.5, 0.6, 0.6, 0.6, 0.6)
    assert result.enough(0.001) == 3 and result.enough(0.1) == 1
    lost = tuned(history_of(an_arm(), [0.9], ["diverged"]), 1)
    assert lost.trace == (0.0,) and lost.enough(0.1) is None


def test_what_matters_is_distinguished_from_what_does_not() -> None:
    """Where τ alone decides, it has nearly all importance."""
    arm = an_arm(60)
    history = history_of(arm, [0.0] * 61)
    for row in history.search.values():
        tau = json.loads(row["values"])["tau"]
        row[f"validation.{arm.metric}"] = 0.5 + 0.1 * math.log10(tau)
    shares = tuned(history, 61).importances
    assert set(shares) == set(SPACE) and shares["tau"] > 0.8
    assert sum(shares.values()) == pytest.approx(1)
    assert tuned(history, 9).importances == {} == tuned(history_of(arm, [0.5] * 20), 20).importances


# Values at an end of their range.

COUNTS = torch.tensor([100, 50, 20, 10, 5, 3])


def proposals(name: str, dimension: Dimension, value: Scalar, loss: str = "smooth_topk_svm") -> list[str]:
    space = {name: dimension, "other": Float(0, 1)}
    first = {name: dimension.ends[0], "other": 0.5}
    return [edge.in_words for edge in edges(Loss(loss, space, first), {name: value, "other": 0.5})]


RANGE, SHARE = Float(0.001, 1, log=True), Float(0, 10)


@pytest.mark.parametrize(
    ("dimension", "value", "ranges"),
    [
        (RANGE, 0.7, ""),  # 5 % of three decades: from 0.708 on
        (RANGE, 0.72, "0.001 to 1; try 0.001 to 10"),
        (RANGE, 0.0014, "0.001 to 1; try 0.0001 to 1"),
        (RANGE, 0.0015, ""),
        (SHARE, 9.4, ""),
        (SHARE, 9.6, "0 to 10; try 0 to 13.3"),
        (SHARE, 0.3, ""),
        (Float(-5, 1), -4.9, "-5 to 1; try -7 to 1"),
        (Float(-5, 1), 0.9, ""),
        (Int(1, 4), 4, "1 to 4; try 1 to 5"),
        (Int(2, 50, log=True), 2, "2 to 50; try 1 to 50"),
        (Int(1, 50, log=True), 1, ""),  # a logarithm has no 0
        (Choice((None, 4, 2, 1)), 4, "1 to 4; try 8 as well"),
        (Choice((32, 64, 128)), 64, ""),
        (Choice((1, 2, 4)), 1, ""),  # half of 1 is no whole number above 0
        (Choice((10, 11, 12)), 10, "10 to 12; try 9 as well"),
        (Choice((1.0, 2.0, 4.0)), 1.0, "1 to 4; try 0.5 as well"),
        (Choice((1000, 1100, 1240)), 1240, "1000 to 1240; try 1398 as well"),
        (Choice((32, 64)), 64, ""),
        (Choice(("linear", "cosine", "constant")), "cosine", ""),
        (Choice((None, 1, 2, 4)), None, ""),
    ],
)
def test_ends_are_on_the_scale_that_is_searched(dimension: Dimension, value: Scalar, ranges: str) -> None:
    lines = proposals("x", dimension, value)
    assert [line.partition("searched ")[2].rstrip(")") for line in lines] == ([ranges] if ranges else [])


def test_what_cannot_be_passed_is_no_end() -> None:
    assert proposals("samples", Int(1, 50, log=True), 1) == []
    assert "try 1 to 50" in proposals("samples", Int(2, 50), 2)[0]
    assert proposals("gamma", Float(0.05, 1, log=True), 0.99, "generalized_cross_entropy") == []
    assert proposals("gamma", Float(0.05, 1, log=True), 0.99, "focal") != []
    assert proposals("epsilon", Choice((0.25, 0.5, 1.0)), 1.0, "label_smoothing") == []
    assert proposals("epsilon", Choice((0.25, 0.5, 1.0)), 1.0, "noised_topk_hinge") != []
    assert "try 0.5 to 0.975" in proposals("momentum", Float(0.5, 0.95), 0.94)[0]


@pytest.mark.parametrize(
    ("loss", "name"), [(loss, name) for loss, entry in LOSS_CATALOGUE.items() for name in entry.searched]
)
def test_losses_take_the_proposed_values(loss: str, name: str) -> None:
    dimension, _ = LOSS_CATALOGUE[loss].searched[name]
    for value in dimension.ends if not isinstance(dimension, Choice) else ():
        for edge in edges(Loss(loss, {name: dimension}, {name: dimension.ends[0]}), {name: value}):
            for proposed in map(float, edge.proposed.split(" to ")):
                end = round(proposed) if isinstance(dimension, Int) else proposed
                module = build_loss(Loss(loss), {name: end}, 2, COUNTS)
                memory = {"index": torch.tensor([0, 1])} if Loss(loss).remembers else {}
                module(torch.zeros(2, 6), torch.tensor([0, 1]), **memory)
