"""Averages of weights, and what is done to a trained network's last layer, against plain loops."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import update_bn
from torchvision.ops import stochastic_depth

from topk_platform import (
    EMA,
    SWA,
    Float,
    LogitAdjustment,
    LongTail,
    Loss,
    Model,
    Protocol,
    Recipe,
    Regime,
    RetrainedClassifier,
    TauNormalised,
    UserError,
)
from topk_platform.data import Dataset, Split
from topk_platform.models import build_model
from topk_platform.specs import Trial
from topk_platform.training import Session, finish, run_trials
from topk_platform.training.after import AFTERS
from topk_platform.training.learners import LEARNERS
from topk_platform.training.retrained import RetrainedSession, balanced_rows
from topk_platform.training.setup import generator_of
from topk_platform.training.shown import ShownSession
from topk_platform.training.steps.depth import drop_blocks, dropped

MakeTrial = Callable[..., Trial]
TAIL = Regime("tail", "digits", (LongTail(20),))
IMAGES = Regime(
    "images",
    "synthetic_images",
    options={"classes": 4, "superclasses": 2, "train": 40, "validation": 8, "test": 8},
)


def by_steps(session: Session, epochs: int) -> list[dict[str, Any]]:
    """The trained weights after each step, as float64 arrays."""
    seen = []
    while session.step < epochs * session.epoch_steps:
        session.advance(lambda: True)
        seen.append({n: v.double().numpy().copy() for n, v in session.model.state_dict().items()})
    return seen


def test_an_exponential_average_is_the_plain_loops(make_trial: MakeTrial) -> None:
    recipe = Recipe(epochs=2, average=EMA(0.8))
    session = ShownSession.prepare(make_trial(recipe=recipe))
    average = {n: v.double().numpy().copy() for n, v in session.model.state_dict().items()}
    usual = Session.prepare(make_trial(recipe=dataclasses.replace(recipe, average=None)))
    for step, weights in enumerate(by_steps(session, 2), 1):
        decay = min(0.8, step / (step + 9))
        average = {name: decay * average[name] + (1 - decay) * weights[name] for name in weights}
    for name, value in session.weights().items():
        assert np.allclose(value.numpy(), average[name], atol=1e-6)
    trained = by_steps(usual, 2)[-1]
    assert all(np.array_equal(v.double().numpy(), trained[n]) for n, v in session.model.state_dict().items())


def test_an_average_that_forgets_all_is_usual_training_to_the_bit(make_trial: MakeTrial, memory: Any) -> None:
    plain, forgetful = make_trial(), make_trial(recipe=Recipe(epochs=3, average=EMA(0.0)))
    kept, averaged = memory(), memory()
    usual, shown = finish(run_trials([plain], kept))[0], finish(run_trials([forgetful], averaged))[0]
    assert shown.status == "completed", shown.reason
    assert (usual.test, usual.validation) == (shown.test, shown.validation)
    one, other = kept.models[plain.key], averaged.models[forgetful.key]
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_what_is_kept_and_tested_is_the_average(make_trial: MakeTrial, memory: Any) -> None:
    trial = make_trial(recipe=Recipe(epochs=3, average=EMA(0.95)))
    keeper = memory()
    record = finish(run_trials([trial], keeper))[0]
    session = ShownSession.prepare(trial)
    by_steps(session, 3)
    assert all(torch.equal(value, session.weights()[n]) for n, value in keeper.models[trial.key].items())
    assert record.test is not None
    tested = session.test(0, keeper.models[trial.key]).measures.tolist()
    assert record.test == session.scorer.named(tested[1:])


def test_a_mean_of_epochs_has_statistics_of_its_own(make_trial: MakeTrial) -> None:
    """As torch computes them, from the training images without augmentation."""
    recipe = Recipe(epochs=4, batch_size=32, average=SWA(0.5))
    trial = make_trial(recipe=recipe, regime=IMAGES, model=Model("convnet", {"width": 4}))
    session = ShownSession.prepare(trial)
    seen = by_steps(session, 4)
    ends = seen[session.epoch_steps - 1 :: session.epoch_steps][2:]
    shown = session.weights()
    network = build_model(trial.arm.model, session.dataset.shape, 4, "linear")
    mean = {n: torch.as_tensor(np.mean([end[n] for end in ends], 0)) for n in shown}
    network.load_state_dict(mean)
    assert session.normalisation is not None
    images = session.normalisation(session.dataset.train.tensor)
    order = torch.randperm(len(images), generator=generator_of(trial, "statistics"))
    update_bn([images[rows] for rows in order.tensor_split(math.ceil(len(images) / 32))], network)
    for name, value in network.state_dict().items():
        assert torch.allclose(shown[name].float(), value.float(), atol=1e-5), name
    total = 4 * session.epoch_steps
    assert session.rate(step=total - 1) == session.rate(step=total // 2) > 0


def in_sorted_classes() -> Dataset:
    """Two classes that lie far apart, one after the other, and four samples more than a network scores at once."""
    labels = (torch.arange(4100) >= 2000).long()
    inputs = 10.0 * labels[:, None] + torch.randn(4100, 1, generator=torch.Generator().manual_seed(0))
    few = Split(inputs[::400], labels[::400])
    return Dataset(Split(inputs, labels), few, few, classes=2)


def normalised(shape: tuple[int, ...], classes: int, head: str = "linear") -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, classes))


@pytest.mark.parametrize(("size", "accumulate"), [(1024, 1), (4094, 2), (2**20, 1), (1, 1)])
def test_the_statistics_of_a_mean_are_those_of_all_samples(
    size: int, accumulate: int, make_trial: MakeTrial
) -> None:
    """Of data that are sorted by class too, and not half those of the last few samples."""
    trial = make_trial(
        regime=Regime("sorted", f"{__name__}:in_sorted_classes"),
        model=Model(f"{__name__}:normalised"),
        recipe=Recipe(1, batch_size=66, average=SWA(0.0)),
    )
    session = ShownSession.prepare(trial)
    session.train_epoch()
    session.recipe = dataclasses.replace(session.recipe, batch_size=size, accumulate=accumulate)
    shown, inputs = session.weights(), session.dataset.train.tensor
    assert shown["0.running_mean"].item() == pytest.approx(inputs.mean().item(), rel=1e-3)
    if size > 1:  # pairs have little to say about variances
        assert shown["0.running_var"].item() == pytest.approx(inputs.var().item(), rel=0.02)


def test_statistics_that_fail_leave_the_networks_momenta(make_trial: MakeTrial) -> None:
    """A compiled network is used again, so a failed trial must not change how later ones average."""
    trial = make_trial(
        recipe=Recipe(epochs=1, average=SWA(0.0)), regime=IMAGES, model=Model("convnet", {"width": 4})
    )
    session = ShownSession.prepare(trial)
    norms = [module for module in session.model.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    session.train_epoch()
    norms[-1].register_forward_pre_hook(out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        session.weights()
    assert [norm.momentum for norm in norms] == momenta


def out_of_memory(module: nn.Module, inputs: Any) -> None:
    raise torch.OutOfMemoryError


def test_before_the_mean_begins_the_weights_are_the_last_steps(make_trial: MakeTrial) -> None:
    session = ShownSession.prepare(make_trial(recipe=Recipe(epochs=4, average=SWA(0.5))))
    by_steps(session, 2)
    assert all(torch.equal(v, session.model.state_dict()[n]) for n, v in session.weights().items())


def outcome(make_trial: MakeTrial, memory: Any, **recipe: Any) -> tuple[Trial, dict[str, torch.Tensor], Any]:
    trial = make_trial(recipe=Recipe(epochs=3, **recipe), regime=TAIL)
    keeper = memory()
    record = finish(run_trials([trial], keeper))[0]
    assert record.status == "completed", record.reason
    return trial, keeper.models[trial.key], record


def test_adjusted_scores_are_the_usual_ones_less_the_log_prior(make_trial: MakeTrial, memory: Any) -> None:
    _, plain, _ = outcome(make_trial, memory)
    trial, adjusted, record = outcome(make_trial, memory, after=LogitAdjustment(1.5))
    session = Session.prepare(trial)
    counts = np.bincount(session.dataset.train.labels.numpy(), minlength=10)
    inputs = session.dataset.test.tensor
    expected = session.network(0, plain)(inputs).detach().numpy() - 1.5 * np.log(counts / counts.sum())
    result = session.network(0, adjusted)(inputs).detach().numpy()
    assert np.allclose(result, expected, atol=1e-5)
    right = expected.argmax(1) == session.dataset.test.labels.numpy()
    assert record.test["top1"] == pytest.approx(right.mean())


def test_a_step_of_strength_0_changes_nothing(make_trial: MakeTrial, memory: Any) -> None:
    _, plain, usual = outcome(make_trial, memory)
    _, adjusted, record = outcome(make_trial, memory, after=LogitAdjustment(0.0))
    assert all(torch.equal(value, adjusted[name]) for name, value in plain.items())
    assert record.test == usual.test


def test_normalised_weights_are_divided_by_a_power_of_their_norm(make_trial: MakeTrial, memory: Any) -> None:
    _, plain, _ = outcome(make_trial, memory)
    trial, normalised, _ = outcome(make_trial, memory, after=TauNormalised(0.7))
    session = Session.prepare(trial)
    features = session.network(0, plain)[:-1](session.dataset.test.tensor).detach()  # type: ignore[index]
    last = max(int(name.split(".")[0]) for name in plain)
    norms = np.linalg.norm(plain[f"{last}.weight"].numpy(), axis=1)
    expected = functional.linear(features, plain[f"{last}.weight"]).numpy() / norms**0.7
    assert np.allclose(
        session.network(0, normalised)(session.dataset.test.tensor).detach(), expected, atol=1e-5
    )


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 2.0])
def test_a_class_whose_weights_are_all_0_stays_at_0(tau: float) -> None:
    """Tiny weights, whose squares underflow in single precision, are divided by their norm all the same."""
    weights = {
        "last.weight": torch.tensor([[0.0, 0.0], [3.0, 4.0], [3e-30, 4e-30]]),
        "last.bias": torch.ones(3),
    }
    recipe = Recipe(1, after=TauNormalised(tau))
    normalised = AFTERS["TauNormalised"](recipe, weights, "last", torch.tensor([0, 5, 5]))
    sizes = torch.tensor([[0.0], [5.0 ** (1 - tau)], [(5e-30) ** (1 - tau)]], dtype=torch.float64)
    assert torch.allclose(normalised["last.weight"].double(), sizes * torch.tensor([0.6, 0.8]), rtol=1e-6)
    assert not normalised["last.bias"].any()


def test_a_retrained_classifier_stands_on_the_first_stages_features(make_trial: MakeTrial) -> None:
    """The first stage is a shorter training; the second changes the last layer alone, from its initial weights."""
    trial = make_trial(recipe=Recipe(epochs=5, warmup=1.0, after=RetrainedClassifier(2)), regime=TAIL)
    session = RetrainedSession.prepare(trial)
    first = by_steps(session, 3)[-1]
    short = Session.prepare(make_trial(recipe=Recipe(epochs=3, warmup=1.0), regime=TAIL))
    expected = by_steps(short, 3)[-1]
    assert all(np.array_equal(first[name], value) for name, value in expected.items())
    assert session.rate(step=session._first_steps) == trial.arm.recipe.learning_rate
    second = by_steps(session, 5)
    differing = {name for name in first if not np.array_equal(first[name], second[-1][name])}
    assert differing == {f"{session.classifier}.weight", f"{session.classifier}.bias"}
    initial = Session.prepare(trial).weights()[f"{session.classifier}.weight"].double().numpy()
    moved = np.abs(second[0][f"{session.classifier}.weight"] - initial).max()
    assert moved < np.abs(first[f"{session.classifier}.weight"] - initial).max()


def test_balanced_rows_are_equally_often_of_each_class() -> None:
    labels = torch.tensor([3] * 9000 + [0] * 900 + [1] * 100)[torch.randperm(10_000)]
    rows = balanced_rows(labels, torch.Generator().manual_seed(1))
    counts = np.bincount(labels[rows].numpy(), minlength=4)
    assert counts[2] == 0 and stats.chisquare(counts[[0, 1, 3]]).pvalue > 1e-4
    rare = np.bincount(rows[labels[rows] == 1].numpy(), minlength=10_000)[labels == 1]
    assert stats.chisquare(rare).pvalue > 1e-4


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_a_dropped_branch_is_torchvisions(rate: float) -> None:
    branch = torch.randn(50, 3, 4, 4)
    torch.manual_seed(3)
    expected = stochastic_depth(branch, rate, "row")
    torch.manual_seed(3)
    assert torch.equal(dropped(branch, rate), expected)


def test_blocks_are_left_out_in_training_alone_the_last_most_often() -> None:
    network = build_model(Model("resnet18_small"), (3, 8, 8), 4, "linear")
    images, before = torch.randn(2, 3, 8, 8), network.state_dict().keys()
    network.eval()
    expected = network(images)
    drop_blocks(network, 0.8)
    assert torch.equal(network(images), expected) and network.state_dict().keys() == before
    seen: dict[str, float] = {}
    network.train()
    for name, block in network.named_modules():
        if name.endswith("norm2"):
            block.register_forward_hook(
                lambda _m, _i, out, name=name: seen.update(
                    {name: float((out == 0).flatten(1).all(1).double().mean())}
                )
            )
    torch.manual_seed(0)
    network(torch.randn(400, 3, 8, 8))
    rates = [0.8 * index / 8 for index in range(1, 9)]
    assert list(seen.values()) == pytest.approx(rates, abs=0.1)  # four standard errors


@pytest.mark.parametrize("architecture", ["resnet50", "efficientnet_b0"])
def test_torchvisions_networks_have_it(architecture: str) -> None:
    network = build_model(Model("torchvision", {"architecture": architecture}), (3, 64, 64), 5, "linear")
    drop_blocks(network, 0.4)
    own = [m.p for m in network.modules() if type(m).__name__ == "StochasticDepth"]
    assert not own or own[-1] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"stochastic_depth": 0.2}, "stochastic_depth needs a network with residual blocks"),
        ({"after": LogitAdjustment()}, "needs a last layer with a bias"),
    ],
)
def test_what_a_network_cannot_have_fails_with_its_reason(
    recipe: dict[str, Any], message: str, make_trial: MakeTrial
) -> None:
    trial = make_trial(recipe=Recipe(epochs=1, **recipe), model=Model("linear"))
    record = finish(run_trials([trial]))[0]
    assert record.status == "failed" and message in record.reason


def test_a_cosine_head_has_no_classifier_to_change(make_trial: MakeTrial) -> None:
    trial = make_trial(recipe=Recipe(epochs=1, after=TauNormalised()), head="cosine")
    record = finish(run_trials([trial]))[0]
    assert record.status == "failed" and "whose last layer is linear with 10 outputs" in record.reason


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Recipe(5, after=RetrainedClassifier(5)), "RetrainedClassifier.epochs must be below"),
        (lambda: Recipe(5, after=RetrainedClassifier(2), average=EMA()), "goes with neither average"),
        (lambda: Recipe(5, after=RetrainedClassifier(2), keep=("top1",)), "keeps the last epoch's weights"),
        (lambda: EMA(1.0), r"EMA.decay must be in \[0, 1\)"),
        (lambda: SWA(-0.1), r"SWA.start must be in \[0, 1\)"),
        (lambda: LogitAdjustment(-1), "LogitAdjustment.tau must be at least 0"),
    ],
)
def test_wrong_recipes_are_refused(made: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made()


def test_an_ensemble_refuses_what_changes_its_networks(make_trial: MakeTrial) -> None:
    arm = make_trial().arm
    for recipe in (
        Recipe(3, average=EMA()),
        Recipe(3, after=TauNormalised()),
        Recipe(3, stochastic_depth=0.1),
    ):
        with pytest.raises(UserError, match="an ensemble cannot train with average"):
            dataclasses.replace(arm, recipe=recipe, protocol=Protocol(ensemble=2))


def test_what_a_recipe_adds_is_searched_like_any_value(make_trial: MakeTrial) -> None:
    loss = Loss(
        "cross_entropy",
        {"after_tau": Float(0, 3), "average_decay": Float(0.5, 0.99)},
        {"after_tau": 1.0, "average_decay": 0.9},
    )
    recipe = Recipe(epochs=2, average=EMA(), after=LogitAdjustment())
    arm = dataclasses.replace(make_trial().arm, loss=loss, recipe=recipe)
    setting = arm.setting({"after_tau": 2.5, "average_decay": 0.7}).recipe
    assert (setting.after, setting.average) == (LogitAdjustment(2.5), EMA(0.7))
    with pytest.raises(UserError, match="after_tau is searched or fixed, but the recipe has no part with it"):
        dataclasses.replace(arm, recipe=Recipe(epochs=2, average=EMA())).setting(loss.first)
    trial = dataclasses.replace(make_trial(), arm=arm, values={"after_tau": 2.5, "average_decay": 0.7})
    assert Trial.from_json(trial.to_json()) == trial
    assert finish(run_trials([trial]))[0].status == "completed"


def test_learners_are_sessions() -> None:
    assert set(LEARNERS) == {"graphed", "remembering", "retrained", "shown"}
    assert all(issubclass(cast("type", learner), Session) for learner in LEARNERS.values())
    assert isinstance(nn.Linear(2, 2), nn.Module)
