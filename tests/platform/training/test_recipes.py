"""What a recipe says is what happens: schedules, kept weights, class weights, numerics; and what fails says why."""

from __future__ import annotations

import math

import pytest
import torch
from small_trials import IMAGES, a_trial, trained
from torch import Tensor, nn

from topk_platform import EMA, Augmentation, LongTail, Model, Numerics, Recipe, Regime, UserError
from topk_platform.specs import Trial
from topk_platform.training import Session
from topk_platform.training.steps.optim import density_of, effective_weights, learning_rate

TAIL = Regime("tail", "digits", (LongTail(5),))


@pytest.mark.parametrize(
    ("part", "given", "named"),
    [
        (Recipe, {"epochs": 0}, "epochs"),
        (Recipe, {"batch_size": 0}, "batch_size"),
        (Recipe, {"evaluate_every": 0}, "evaluate_every"),
        (Recipe, {"optimizer": "rmsprop"}, "optimizer"),
        (Recipe, {"schedule": "step"}, "schedule"),
        (Recipe, {"schedule": "milestones"}, "milestones"),
        (Recipe, {"milestones": (2,)}, "milestones"),
        (Recipe, {"schedule": "milestones", "milestones": (3, 2)}, "milestones"),
        (Recipe, {"schedule": "milestones", "milestones": (0, 2)}, r"milestones\[0\]"),
        (Recipe, {"decay": 0.0}, "decay"),
        (Recipe, {"warmup": -1.0}, "warmup"),
        (Recipe, {"clip_norm": 0.0}, "clip_norm"),
        (Recipe, {"reweighting": -1}, "reweighting"),
        (Recipe, {"patience": 0, "keep": ("top1",)}, "patience"),
        (Recipe, {"patience": 3}, "patience"),
        (Augmentation, {"crop": -1}, "crop"),
        (Augmentation, {"cutout": -2}, "cutout"),
        (Augmentation, {"mix": "mixcut"}, "mix"),
        (Augmentation, {"mix_alpha": 0.0}, "mix_alpha"),
        (EMA, {"decay": 1.0}, "decay"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(part: type, given: dict[str, object], named: str) -> None:
    with pytest.raises(UserError, match=rf"{part.__name__}\.{named} "):
        part(**({"epochs": 4} if part is Recipe else {}) | given)


def test_the_warmup_rises_linearly_and_multiplies_the_schedule() -> None:
    """1.5 epochs of four steps each: six steps up, then the schedule as it is."""
    for schedule in ("constant", "cosine"):
        recipe = Recipe(3, learning_rate=2.0, schedule=schedule, warmup=1.5)
        plain = Recipe(3, learning_rate=2.0, schedule=schedule)
        for step in range(12):
            share = min(1.0, (step + 1) / 6)
            assert learning_rate(recipe, step, 12) == pytest.approx(share * learning_rate(plain, step, 12))


def test_the_rates_of_a_run_are_the_schedules() -> None:
    recipe = Recipe(4, learning_rate=0.2, schedule="milestones", milestones=(1, 3), warmup=1.0)
    rates = [epoch.learning_rate for epoch in trained(a_trial(recipe=recipe)).epochs]
    assert rates == pytest.approx([0.2, 0.02, 0.02, 0.002])


def by_hand(trial: Trial) -> tuple[list[list[float]], list[list[float]], list[str]]:
    """Validation and test measures after every epoch, and their names."""
    session = Session.prepare(trial)
    validation, test = [], []
    for _ in range(session.recipe.epochs):
        session.advance()
        validation.append(session.validate()[0, 1:].tolist())
        test.append(session.test(0, session.weights()).measures[1:].tolist())
    return validation, test, list(session.scorer.names)


def test_each_kept_metric_is_reported_its_own_best_epoch() -> None:
    """sawada2020's protocol: test top-1 by the best validation top-1, top-3 by the best top-3, the rest by the arm's.

    The rate is so high that epochs go up and down; in one of five runs at least the two best ones must differ.
    """
    recipe = Recipe(8, learning_rate=0.6, schedule="constant", keep=("top1", "top3"))
    differ = 0
    for seed in range(1, 6):
        trial = a_trial(recipe=recipe, seed=seed)
        validation, test, names = by_hand(trial)
        best = {
            metric: max(range(8), key=lambda epoch: (validation[epoch][names.index(metric)], -epoch))
            for metric in recipe.keep
        }
        record = trained(trial)
        assert record.test is not None
        for name, value in record.test.items():
            epoch = best.get(name, best["top3"])
            assert value == test[epoch][names.index(name)]
            assert record.validation[name] == validation[epoch][names.index(name)]
        differ += best["top1"] != best["top3"]
    assert differ


class Hungry(nn.Module):
    """A loss that asks for more than there is."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        raise self.error


def out_of_device_memory() -> nn.Module:
    return Hungry(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))


def out_of_memory() -> nn.Module:
    return Hungry(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"))


def otherwise_wrong() -> nn.Module:
    return Hungry(RuntimeError("the shapes do not match"))


@pytest.mark.parametrize(
    ("loss", "values", "start"),
    [
        ("out_of_device_memory", {}, "out of memory at batch size 48, take a smaller batch_size: "),
        ("out_of_memory", {"batch_size": 96}, "out of memory at batch size 96, take a smaller batch_size: "),
        ("otherwise_wrong", {}, "RuntimeError: the shapes do not match"),
    ],
)
def test_running_out_of_memory_names_the_batch_size(loss: str, values: dict[str, int], start: str) -> None:
    record = trained(a_trial(f"{__name__}:{loss}", recipe=Recipe(1, batch_size=48), values=values))
    assert record.status == "failed" and record.reason.startswith(start)


def test_deferred_weights_are_the_inverse_effective_numbers() -> None:
    """(1 - β) / (1 - β^n), written out as 1 / (1 + β + ... + β^(n-1)), scaled to a mean of 1."""
    counts, beta = [500, 50, 5, 1], 0.9999
    raw = [1 / sum(beta**i for i in range(n)) for n in counts]
    expected = [4 * value / sum(raw) for value in raw]
    assert effective_weights(torch.tensor(counts)).tolist() == pytest.approx(expected, rel=1e-5)
    assert effective_weights(torch.tensor([3, 300]), beta=0.0).tolist() == [1, 1]


def test_classes_weigh_from_their_epoch_on() -> None:
    recipe = Recipe(3, batch_size=10**6, reweighting=2, schedule="constant", learning_rate=0.01)
    session = Session.prepare(a_trial("ldam", recipe=recipe, regime=TAIL, head="cosine"))
    weights = effective_weights(session.dataset.class_counts)
    assert weights.max() > 2 * weights.min()
    for epoch in range(3):
        scores, labels = session.model(session.dataset.train.inputs).detach(), session.dataset.train.labels
        losses = 30 * (scores - session.loss.module.margins * nn.functional.one_hot(labels, 10))
        per_class = weights if epoch == 2 else None
        expected = nn.functional.cross_entropy(losses, labels, per_class)
        assert session.advance()[0, 0].item() == pytest.approx(expected.item(), rel=1e-5)


NUMERICS = {
    "bfloat16": Numerics(bfloat16=True),
    "channels_last": Numerics(channels_last=True),
    "deterministic": Numerics(deterministic=True),
    "all of them": Numerics(bfloat16=True, channels_last=True, deterministic=True, tf32=True),
}


def image_trial(numerics: Numerics, loss: str = "cross_entropy") -> Trial:
    recipe = Recipe(2, batch_size=16, augmentation=Augmentation(crop=2, flip=True), numerics=numerics)
    return a_trial(loss, recipe=recipe, regime=IMAGES, model=Model("convnet", {"width": 4}))


@pytest.mark.parametrize("name", NUMERICS)
def test_a_network_computes_the_same_to_its_precision(name: str) -> None:
    """The first epoch's losses: 6 steps from the same weights; bfloat16 has 8 bits."""
    plain, other = (trained(image_trial(n)) for n in (Numerics(), NUMERICS[name]))
    assert (plain.status, other.status) == ("completed", "completed"), other.reason
    tolerance = 0.05 if NUMERICS[name].bfloat16 else 1e-3
    assert other.epochs[0].train_loss == pytest.approx(plain.epochs[0].train_loss, rel=tolerance)
    assert (other.epochs[0].train_loss == plain.epochs[0].train_loss) == (name == "deterministic")


class Float32Only(nn.Module):
    """Cross-entropy that looks at what it is given."""

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        if scores.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            raise TypeError(f"scores in {scores.dtype}")
        return nn.functional.cross_entropy(scores, target)


def float32_only() -> nn.Module:
    return Float32Only()


def test_losses_are_in_float32_whatever_the_network_is_in() -> None:
    trial = image_trial(Numerics(bfloat16=True), f"{__name__}:float32_only")
    assert trained(trial).status == "completed"
    session = Session.prepare(trial)
    session.advance()
    assert {p.dtype for p in session.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("loss", ["cross_entropy", "topk_hinge", "smooth_topk_svm"])
def test_the_gradient_density_is_a_count_of_entries(loss: str) -> None:
    """Of one full batch at the initial weights, entry by entry."""
    trial = a_trial(loss, recipe=Recipe(1, batch_size=10**6))
    session, twin = Session.prepare(trial), Session.prepare(trial)
    density = session.advance()[0, 1].item()
    scores = twin.model(twin.dataset.train.inputs).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(twin.loss(scores, twin.dataset.train.labels), scores)
    by_sample = [sum(entry != 0 for entry in row) for row in gradient.tolist()]
    assert density == pytest.approx(sum(by_sample) / len(by_sample))
    assert (density == 10) == (loss != "topk_hinge")


def test_the_density_of_a_stack_is_each_members() -> None:
    gradient = torch.tensor([[[1.0, 0, -2], [0, 0, 0]], [[1, 1, 1], [math.inf, 0, 1e-30]]])
    assert density_of(gradient).tolist() == [1.0, 2.5]
