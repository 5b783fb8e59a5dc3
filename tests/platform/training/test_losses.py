"""Losses that change from epoch to epoch, and losses that remember each sample."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_studies import small_study
from small_trials import IMAGES, Memory, a_trial, completed, same_weights, trained
from torch import nn

import topk_losses as tl
from topk_platform import (
    EMA,
    Augmentation,
    Choice,
    Float,
    LongTail,
    Loss,
    Model,
    Protocol,
    Recipe,
    Regime,
    Schedule,
    UserError,
)
from topk_platform.data import load
from topk_platform.records.writer import trial_row
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import Trial, TrialRecord
from topk_platform.training import Session, check_loss, finish, run_trials
from topk_platform.training.ensemble import Ensemble
from topk_platform.training.stacking import losses_together

TAIL = Regime("tail", "digits", (LongTail(5),))


def scheduled(name: str, fixed: Mapping[str, Any], **space: Any) -> Loss:
    """The loss with such fixed parameters, and the dimensions that they name."""
    return Loss(name, space, {name: dimension.ends[0] for name, dimension in space.items()}, fixed)


@given(
    start=st.floats(-10, 10),
    end=st.floats(-10, 10),
    epochs=st.integers(2, 50),
    shape=st.sampled_from(("linear", "cosine")),
)
def test_a_schedule_goes_from_one_value_to_the_other_and_no_further(
    start: float, end: float, epochs: int, shape: str
) -> None:
    result = [Schedule(shape, start, end).at(epoch, epochs) for epoch in range(epochs)]
    assert (result[0], result[-1]) == (start, end)
    rounding = 1e-14 * (abs(start) + abs(end))  # a few units in the last place of what is added
    rising = [(b - a) * math.copysign(1, end - start) for a, b in itertools.pairwise(result)]
    assert min(rising) >= -rounding
    middle = Schedule(shape, start, end).at(2, 5)
    assert middle == pytest.approx((start + end) / 2, abs=1e-12)
    assert Schedule("constant", start).at(epochs - 1, epochs) == start


def test_between_whole_numbers_a_schedule_stays_whole() -> None:
    result = [Schedule("linear", 10, 1).at(epoch, 6) for epoch in range(6)]
    assert result == [10, 8, 6, 5, 3, 1]
    assert all(isinstance(value, int) for value in result)
    assert Schedule("linear", 10, 1).at(0, 1) == 10


def test_a_value_that_is_worked_into_a_buffer_changes_too() -> None:
    loss = Loss("logit_adjusted", fixed={"tau": Schedule("linear", 0.5, 2.5)})
    session = Session.prepare(a_trial(loss, regime=TAIL))
    scores, labels = torch.randn(4, 10, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    for tau in (0.5, 1.5, 2.5):
        session.advance()
        expected = tl.LogitAdjusted(session.dataset.class_counts, tau=tau)(scores, labels)
        assert torch.equal(session.loss(scores, labels), expected)


def weights_of(record: TrialRecord) -> list[float | None]:
    return [epoch.train_loss for epoch in record.epochs]


@pytest.mark.parametrize("name", ["smooth_topk_svm", "noised_topk_hinge", "ldam"])
def test_a_constant_schedule_trains_as_the_value_does(name: str) -> None:
    parameter = {"smooth_topk_svm": "tau", "noised_topk_hinge": "epsilon", "ldam": "scale"}[name]
    plain = completed(a_trial(Loss(name, fixed={parameter: 0.7})))
    for schedule in (Schedule("constant", 0.7), Schedule("cosine", 0.7, 0.7)):
        record = completed(a_trial(Loss(name, fixed={parameter: schedule})))
        assert (weights_of(record), record.test) == (weights_of(plain), plain.test)


@pytest.mark.parametrize("same", [True, False])
def test_members_of_an_ensemble_follow_their_own(same: bool) -> None:
    loss = scheduled("smooth_topk_svm", {"tau": Schedule("cosine", 1.0, "end")}, end=Float(0.01, 1.0))
    trials = [a_trial(loss, seed=s, values={"end": 0.1 if same else 0.1 * s}) for s in (1, 2, 3)]
    ensemble = Ensemble.prepare(trials)
    for epoch, alike in ((0, True), (1, same)):  # the schedules begin at one value
        together = losses_together(trials, ensemble.datasets, ensemble.losses, epoch)
        assert together is not None and (together.scale is None) == alike
    for member, trial in zip(finish(run_trials(trials)), trials, strict=True):
        alone = trained(trial)
        assert weights_of(member) == pytest.approx(weights_of(alone), rel=1e-5)


def test_a_schedule_is_part_of_what_is_recorded() -> None:
    space = {"shape": Choice(("linear", "constant")), "end": Float(0.01, 1.0, when={"shape": ("linear",)})}
    loss = scheduled("smooth_topk_svm", {"tau": Schedule("shape", 1.0, "end")}, **space)
    trial = a_trial(loss, values={"shape": "linear", "end": 0.25})
    assert trial.setting.own == {"tau": Schedule("linear", 1.0, 0.25)}
    row = trial_row(TrialRecord(trial, "completed"))
    assert row["values"] == '{"tau": "linear 1.0 to 0.25", "shape": "linear", "end": 0.25}'
    assert Trial.from_json(trial.to_json()) == trial
    constant = dataclasses.replace(trial, values={"shape": "constant"})
    assert constant.setting.own == {"tau": Schedule("constant", 1.0)}
    other = dataclasses.replace(trial, values={"shape": "linear", "end": 0.2})
    assert len({trial.key, constant.key, other.key}) == 3


class Learnt(nn.Module):
    def __init__(self, tau: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(tau))

    def forward(self, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(scores * self.scale, target)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (Loss("smooth_topk_svm", fixed={"tau": Schedule("linear", 1.0, -1.0)}), "arm r/mlp/smooth_topk_svm.*tau"),
        (Loss("smooth_topk_svm", fixed={"temprature": Schedule("linear", 1.0, 0.1)}), "has no 'temprature'"),
        (Loss(f"{__name__}:Learnt", fixed={"tau": Schedule("linear", 1.0, 0.1)}),
         r"\['tau'\] cannot follow a schedule, because the loss is then built for every epoch"),
        (Loss("smooth_topk_svm", {"s": Choice(("constant", "linear"))}, {"s": "constant"},
              {"tau": Schedule("s", 1.0)}), "Schedule.end must be a number or a name"),
    ],
)  # fmt: skip
def test_what_cannot_be_scheduled_is_reported_before_anything_starts(loss: Loss, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_study(small_study(loss))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(1),
        Recipe(1, batch_size=10_000),
        Recipe(1, augmentation=Augmentation(crop=2, flip=True)),
    ],
    ids=["batches", "one batch", "augmented"],
)
def test_batches_know_the_positions_of_their_samples(recipe: Recipe) -> None:
    trial = a_trial("early_learning", recipe=recipe, regime=IMAGES, model=Model("linear"))
    batches = Session.prepare(trial).batches
    seen = []
    for inputs, labels, rows in batches.taken(0):
        assert torch.equal(batches.split.inputs[rows], inputs)
        assert torch.equal(batches.split.labels[rows], labels)
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(batches.split)))


def test_the_memory_is_the_plain_loops_average_of_predictions() -> None:
    session = Session.prepare(a_trial("early_learning", recipe=Recipe(2)))
    predictions: dict[int, list[torch.Tensor]] = {}
    taken = session.batches.taken

    def with_note(done: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        for batch in taken(done):
            places.extend(batch[2].tolist())
            yield batch

    session.batches.taken = with_note  # type: ignore[method-assign]
    session.model.register_forward_hook(
        lambda _module, _inputs, scores: noted.extend(scores.detach().softmax(1))
    )
    for _ in range(2):
        noted: list[torch.Tensor] = []
        places: list[int] = []
        session.advance()
        for sample, p in zip(places, noted, strict=True):
            predictions.setdefault(sample, []).append(p)
    for sample, (first, second) in predictions.items():
        expected = 0.7 * 0.3 * first + 0.3 * second
        assert torch.allclose(session.loss.module.memory[sample], expected, atol=1e-6)  # type: ignore[index]


def test_a_memory_comes_back_after_a_cut() -> None:
    """Bit for bit, and it matters: a training that has forgotten ends otherwise."""
    trial = a_trial("early_learning", recipe=Recipe(3, average=EMA(0.8)))
    whole = Memory()
    expected = completed(trial, whole)
    for cut, forgets in ((5, False), (34, False), (34, True)):
        cutting = Memory(cut)
        with pytest.raises(KeyboardInterrupt):
            trained(trial, cutting)
        if forgets:
            cutting.states[-1]["learner"]["loss"]["memory"].zero_()
        resumed = trained(trial, cutting)
        same = [e.train_loss for e in resumed.epochs] == [e.train_loss for e in expected.epochs]
        weights = whole.models[trial.key], cutting.models[trial.key]
        assert same is not forgets and same_weights(*weights) is not forgets, cut


def test_what_it_cannot_go_with_is_refused() -> None:
    arm = a_trial("early_learning").arm
    with pytest.raises(
        UserError, match="early_learning remembers each training sample and cannot train an ensemble"
    ):
        dataclasses.replace(arm, protocol=Protocol(ensemble=2))
    counts = load(IMAGES).class_counts
    scheduled = Loss("early_learning", fixed={"strength": Schedule("cosine", 1.0, 0.1)})
    with pytest.raises(
        UserError, match=r"cannot follow a schedule.* it has a memory of each training sample"
    ):
        check_loss(scheduled, dict(scheduled.fixed), 3, counts)
    mixed = Recipe(1, augmentation=Augmentation(mix="mixup"))
    with pytest.raises(UserError, match=r"mixup makes soft labels.* a mixture is not one of them"):
        check_loss(Loss("early_learning"), {}, 3, counts, mixed)
