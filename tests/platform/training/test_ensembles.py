from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from made_studies import small_study
from small_trials import a_trial, trained
from torch import nn

from topk_platform import (
    Int,
    LongTail,
    Loss,
    Model,
    PerClass,
    Protocol,
    Recipe,
    Regime,
    UserError,
)
from topk_platform.data import load
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import Trial, TrialRecord
from topk_platform.specs.recipe import OPTIMIZERS
from topk_platform.training import build_loss, finish, run_trials
from topk_platform.training.ensemble import Ensemble
from topk_platform.training.steps.optim import ColumnOptimizer, make_optimizer

SEEDS = (1, 2, 3, 4)
RING = Regime("ring", "ring", options={"sigma": 20.0, "per_class": 20})


class Bent(nn.Module):
    """No chain of layers that are known: it goes through vmap."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(64, 16), nn.Linear(16, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.hidden(inputs.flatten(1)).sin())


def network(make: Callable[[int], nn.Module]) -> Callable[..., nn.Module]:
    """A model by a function of its number of classes."""
    return lambda shape, classes, head="linear": make(classes)


@network
def repeating(classes: int) -> nn.Module:
    """One activation and one layer occur twice; a walk over distinct modules meets them once."""
    act, inner = nn.Tanh(), nn.Linear(16, 16)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), act, inner, act, inner, nn.Linear(16, classes))


class Sharing(Bent):
    """Two layers have one weight, and no chain of layers that are known."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.inner, self.same = nn.Linear(16, 16), nn.Linear(16, 16)
        self.same.weight = self.inner.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.same(self.inner(self.hidden(inputs.flatten(1)).sin()).sin()))


@network
def sharing_bias(classes: int) -> nn.Module:
    layers = nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, classes)
    nn.init.ones_(layers[0].bias)
    layers[2].bias = layers[0].bias
    return nn.Sequential(nn.Flatten(), *layers)


@network
def tripled(classes: int) -> nn.Module:
    """A hook of the whole chain changes its scores."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, classes))
    network.register_forward_hook(lambda _module, _inputs, scores: 3 * scores)
    return network


class Doubled(Bent):
    """Its first layer works in place."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.flatten(1).mul_(2))


@network
def hooked(classes: int) -> nn.Module:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
    network[1].weight.register_hook(lambda gradient: 0.1 * gradient)
    return network


@network
def frozen(classes: int) -> nn.Module:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))
    network[1].requires_grad_(requires_grad=False)
    return network


class Noise(nn.Module):
    """Its numbers are random."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + 0.1 * torch.randn_like(inputs)


bent, sharing, doubled = network(Bent), network(Sharing), network(Doubled)
normalised = network(
    lambda n: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, n))
)
dropping = network(lambda n: nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, n)))
drawing = network(lambda n: nn.Sequential(nn.Flatten(), Noise(), nn.Linear(64, n)))


CASES: dict[str, dict[str, Any]] = {
    "mlp": {},
    "through vmap": {"model": Model(f"{__name__}:bent")},
    "one module twice": {"model": Model(f"{__name__}:repeating")},
    "a weight that layers share": {"model": Model(f"{__name__}:sharing")},
    "a bias that layers of a chain share": {"model": Model(f"{__name__}:sharing_bias")},
    "a hook of the chain": {"model": Model(f"{__name__}:tripled")},
    "a frozen layer": {"model": Model(f"{__name__}:frozen")},
    "images of each seed's own mean and deviation": {
        "regime": Regime("few", "kanji", (PerClass(1),), options={"classes": 6}),
        "measures": ("nll",),
    },
    "cosine head": {"loss": "ldam", "head": "cosine"},
    "own draws": {"loss": "noised_topk_hinge"},
    "own margins": {
        "loss": "ldam",
        "regime": Regime("tail", "digits", (LongTail(5),)),
        "recipe": Recipe(3, learning_rate=0.01),  # larger steps multiply what rounding changes
    },
    "smooth": {"loss": "smooth_topk_svm"},
    "own data, full batches": {
        "regime": RING,
        "model": Model("linear"),
        "recipe": Recipe(6, batch_size=10**6),
    },
    "adam, clipped, kept": {
        "recipe": Recipe(3, optimizer="adam", learning_rate=0.01, clip_norm=0.1, keep=("top1",), warmup=1.0)
    },
    "reweighted": {"recipe": Recipe(3, reweighting=1), "regime": Regime("tail", "digits", (LongTail(5),))},
}


def search(loss: str, values: Sequence[dict[str, float]], **shared: Any) -> list[Trial]:
    """The first trials of a search, with these values."""
    of = {"phase": "search", "seed": 0, **shared}
    return [a_trial(loss, number=number, values=given, **of) for number, given in enumerate(values)]


def rates(*given: float) -> list[dict[str, float]]:
    return [{"learning_rate": rate} for rate in given]


def both(trials: list[Trial]) -> list[tuple[TrialRecord, TrialRecord]]:
    together = finish(run_trials(trials))
    alone = [trained(trial) for trial in trials]
    return list(zip(together, alone, strict=True))


def assert_same(member: TrialRecord, alone: TrialRecord) -> None:
    assert (member.status, alone.status) == ("completed", "completed"), (member.reason, alone.reason)
    assert len(member.epochs) == len(alone.epochs)
    for one, other in zip(member.epochs, alone.epochs, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5, abs=1e-5)
        assert one.gradient_density == pytest.approx(other.gradient_density, abs=0.05)
        assert one.learning_rate == other.learning_rate
    assert member.validation == pytest.approx(alone.validation, abs=0.01)  # a sample or two at the border
    assert member.test == pytest.approx(alone.test, abs=0.01)


@pytest.mark.parametrize("name", CASES)
def test_a_members_result_is_that_of_its_network_alone(name: str) -> None:
    for member, alone in both([a_trial(seed=seed, **CASES[name]) for seed in SEEDS]):
        assert_same(member, alone)


def test_a_network_that_works_in_place_leaves_the_data_as_they_are() -> None:
    """All trials of a process share the data, so the samples must be the same after a trial as before it."""
    trials = [a_trial(seed=seed, model=Model(f"{__name__}:doubled"), recipe=Recipe(1)) for seed in SEEDS]
    before = load(trials[0].arm.regime).validation.tensor.clone()
    assert all(record.status == "completed" for record in finish(run_trials(trials)))
    assert torch.equal(load(trials[0].arm.regime).validation.tensor, before)


def test_members_may_differ_in_every_value_but_the_batch_size() -> None:
    values = [
        {"tau": 0.1 * 3**n, "learning_rate": 0.02 * 2**n, "momentum": 0.3 * n, "weight_decay": 1e-4 * n}
        for n in range(4)
    ]
    for member, alone in both(search("smooth_topk_svm", values)):
        assert member.epochs[-1].train_loss == pytest.approx(alone.epochs[-1].train_loss, rel=1e-4)


ONE_CALL: dict[str, list[dict[str, Any]]] = {
    "cross_entropy": [{"temperature": t} for t in (0.03, 0.5, 1.0, 30.0)],
    "smooth_topk_svm": [
        {"tau": tau, "margin": margin} for tau, margin in ((0.01, 1.0), (0.3, 0.5), (1.0, 0.0), (100.0, 2.0))
    ],
    "topk_hinge": [{"margin": margin} for margin in (0.1, 0.5, 1.0, 4.0)],
    "convex_topk_hinge": [{"margin": margin} for margin in (0.1, 0.5, 1.0, 4.0)],
    "calibrated_topk_hinge": [{"margin": margin} for margin in (0.1, 0.5, 1.0, 4.0)],
}


@pytest.mark.parametrize("loss", ONE_CALL)
def test_one_call_for_unlike_losses_has_each_members_value_and_gradient(loss: str) -> None:
    """In float32, s / t is rounded by a relative 2^-24, so an exponent of the loss by |s| / t of it, on either side."""
    trials = search(loss, ONE_CALL[loss])
    ensemble = Ensemble.prepare(trials)
    assert ensemble.together is not None and ensemble.together.scale is not None
    scores = torch.randn((4, 33, 10), generator=torch.Generator().manual_seed(1)).mul_(5).requires_grad_()
    target = torch.randint(10, (4, 33), generator=torch.Generator().manual_seed(2))
    ours = ensemble.together(scores, target, [one.generator for one in ensemble.losses])
    (gradients,) = torch.autograd.grad(ours.sum(), scores)
    for member, (trial, values) in enumerate(zip(trials, ONE_CALL[loss], strict=True)):
        own = scores.detach()[member].double().requires_grad_()
        alone = build_loss(trial.arm.loss, values, 3, ensemble.datasets[0].class_counts)
        expected = alone(own, target[member])
        (gradient,) = torch.autograd.grad(expected, own)
        scale = float(next(iter(values.values())))
        largest = float(own.detach().abs().max())
        error = 8 * 2.0**-24 * (1 + (largest + 3 * values.get("margin", 0.0)) / scale)
        assert ours[member].item() == pytest.approx(expected.item(), rel=8 * 2.0**-24, abs=scale * error)
        # A row's gradient adds up to at most 2 in absolute value, and the mean divides it by the number of rows.
        torch.testing.assert_close(gradients[member].double(), gradient, rtol=0, atol=2 * error / 33)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_update_with_columns_is_each_members_own(optimizer: str) -> None:
    """Against torch's, to a few units in the last place of the largest weights and updates, which add up over steps."""
    recipes = [
        Recipe(1, optimizer=optimizer, learning_rate=rate, weight_decay=decay, momentum=momentum)
        for rate, decay, momentum in ((0.1, 0.0, 0.9), (0.01, 0.1, 0.0), (0.03, 1e-3, 0.5))
    ]
    random = torch.Generator().manual_seed(1)
    start = torch.randn((3, 4, 5), generator=random), torch.randn((3, 4), generator=random)
    together = [value.clone().requires_grad_() for value in start]
    column = ColumnOptimizer(recipes, together)
    alone = [[value[member].clone().requires_grad_() for value in start] for member in range(3)]
    single = [make_optimizer(recipe, own) for recipe, own in zip(recipes, alone, strict=True)]
    for step in range(1, 9):
        column.param_groups[0]["lr"] = torch.tensor([recipe.learning_rate / step for recipe in recipes])
        for index, weights in enumerate(together):
            weights.grad = torch.randn(weights.shape, generator=random)
            for member, own in enumerate(alone):
                own[index].grad = weights.grad[member].clone()
        column.step()
        for recipe, optimizer_alone in zip(recipes, single, strict=True):
            optimizer_alone.param_groups[0]["lr"] = recipe.learning_rate / step
            optimizer_alone.step()
    for index, weights in enumerate(together):
        expected = torch.stack([own[index].detach() for own in alone])
        torch.testing.assert_close(weights.detach(), expected, rtol=0, atol=8 * 4 * 2.0**-22)


def test_members_of_one_loss_take_one_call_whatever_their_rates() -> None:
    together = Ensemble.prepare(search("topk_transition", rates(0.1, 0.05, 0.025))).together
    assert together is not None and together.scale is None
    unlike = search("noised_topk_hinge", [{"epsilon": epsilon} for epsilon in (0.1, 0.2, 0.4)])
    assert Ensemble.prepare(unlike).together is None


def test_a_member_that_diverges_or_is_pruned_leaves_the_others_alone() -> None:
    *others, last = search("cross_entropy", rates(0.1, 1e30, 0.1))
    records = finish(run_trials([*others, dataclasses.replace(last, stop_below=((1, 1.1),))]))
    assert [record.status for record in records] == ["completed", "diverged", "pruned"]
    alone = trained(others[0])
    assert records[0].epochs[-1].train_loss == pytest.approx(alone.epochs[-1].train_loss, rel=1e-5)
    assert [len(record.epochs) for record in records] == [3, 0, 1]


SIZES = Loss("cross_entropy", {"batch_size": Int(1, 2)}, {"batch_size": 1})


@pytest.mark.parametrize(
    ("model", "loss", "message"),
    [
        (f"{__name__}:normalised", "cross_entropy", "neither buffers"),
        (f"{__name__}:dropping", "cross_entropy", "nor dropout"),
        (f"{__name__}:hooked", "cross_entropy", "no hooks on gradients"),
        (
            f"{__name__}:drawing",
            "cross_entropy",
            r"stack of networks \(Protocol\(ensemble=1\) trains each alone\)",
        ),
        ("mlp", SIZES, "one batch_size"),
        ("mlp", "conformal_training", "one value for a whole batch and cannot train an ensemble"),
    ],
)
def test_what_cannot_train_together_is_refused_before_anything_runs(
    model: str, loss: Loss | str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_study(small_study(loss, models=[model], protocol=Protocol(ensemble=2)))
    check_study(small_study(loss, models=[model]))
