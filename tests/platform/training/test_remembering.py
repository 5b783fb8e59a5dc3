"""A loss that remembers each training sample: the places that it is given, and its memory in checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from topk_platform import (
    EMA,
    Augmentation,
    Loss,
    Model,
    Protocol,
    Recipe,
    Regime,
    Schedule,
    UserError,
)
from topk_platform.data import load
from topk_platform.specs import Trial
from topk_platform.training import Session, check_loss, finish, run_trials

MakeTrial = Callable[..., Trial]
IMAGES = Regime(
    "images",
    "synthetic_images",
    options={"classes": 4, "superclasses": 2, "train": 40, "validation": 8, "test": 8},
)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(1),
        Recipe(1, batch_size=10_000),
        Recipe(1, augmentation=Augmentation(crop=2, flip=True)),
    ],
    ids=["batches", "one batch", "augmented"],
)
def test_batches_know_the_positions_of_their_samples(recipe: Recipe, make_trial: MakeTrial) -> None:
    trial = make_trial("early_learning", recipe=recipe, regime=IMAGES, model=Model("linear"))
    batches = Session.prepare(trial).batches
    seen = []
    for inputs, labels, rows in batches.taken(0):
        assert torch.equal(batches.split.inputs[rows], inputs)
        assert torch.equal(batches.split.labels[rows], labels)
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(batches.split)))


def test_the_memory_is_the_plain_loops_average_of_predictions(make_trial: MakeTrial) -> None:
    session = Session.prepare(make_trial("early_learning", recipe=Recipe(2)))
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
        session.train_epoch()
        for sample, p in zip(places, noted, strict=True):
            predictions.setdefault(sample, []).append(p)
    for sample, (first, second) in predictions.items():
        expected = 0.7 * 0.3 * first + 0.3 * second
        assert torch.allclose(session.loss.module.memory[sample], expected, atol=1e-6)  # type: ignore[index]


def test_a_memory_comes_back_after_a_cut(make_trial: MakeTrial, memory: Any) -> None:
    """Bit for bit, and it matters: a training that has forgotten ends otherwise."""
    trial = make_trial("early_learning", recipe=Recipe(3, average=EMA(0.8)))
    whole = memory()
    (expected,) = finish(run_trials([trial], whole))
    assert expected.status == "completed", expected.reason
    for cut, forgets in ((5, False), (34, False), (34, True)):
        cutting = memory(cut)
        with pytest.raises(KeyboardInterrupt):
            finish(run_trials([trial], cutting))
        if forgets:
            cutting.states[-1]["learner"]["loss"]["memory"].zero_()
        (resumed,) = finish(run_trials([trial], cutting))
        same = [e.train_loss for e in resumed.epochs] == [e.train_loss for e in expected.epochs]
        weights = zip(whole.models[trial.key].values(), cutting.models[trial.key].values(), strict=True)
        assert same is not forgets and all(torch.equal(*pair) for pair in weights) is not forgets, cut


def test_without_strength_training_is_that_of_cross_entropy(make_trial: MakeTrial) -> None:
    plain = make_trial(recipe=Recipe(2))
    loss = Loss("early_learning", fixed={"strength": 0.0})
    remembering = dataclasses.replace(plain, arm=dataclasses.replace(plain.arm, loss=loss))
    one, other = finish(run_trials([plain])) + finish(run_trials([remembering]))
    assert one.status == other.status == "completed"
    assert (one.test, one.validation) == (other.test, other.validation)


def test_what_it_cannot_go_with_is_refused(make_trial: MakeTrial) -> None:
    arm = make_trial("early_learning").arm
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
