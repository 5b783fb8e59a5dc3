"""Each optimizer is torch's own, alone and in a stack; clipping and densities."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from small_trials import IMAGES, a_trial
from torch import Tensor, nn

from topk_platform import Model, Numerics, Recipe
from topk_platform.training import Session
from topk_platform.training.steps.optim import clip, make_optimizer

RECIPES = (
    Recipe(1, learning_rate=0.1, momentum=0.9, weight_decay=1e-3),
    Recipe(1, learning_rate=0.1, momentum=0.0),
    Recipe(1, optimizer="adam", learning_rate=0.01, weight_decay=1e-3),
    Recipe(1, optimizer="adamw", learning_rate=0.01, weight_decay=0.1),
    Recipe(1, optimizer="heavy_ball", learning_rate=0.1, momentum=0.9, weight_decay=1e-3),
)

TRAINS = """
import sys
from topk_platform.specs import Trial
from topk_platform.training import run_trials
class Forgetful:
    seconds, pauses = 0.0, ()
    def load(self, trials): return None
    def save(self, trials, step, state): pass
    def save_model(self, trial, model, inputs): return ""
    def save_ranks(self, trial, ranks, images, *groups): return ""
    def save_guesses(self, trial, guesses, images): return ""
training = run_trials([Trial.from_json(sys.stdin.read())], Forgetful())
try:
    while True: next(training)
except StopIteration as end:
    print([record.status for record in end.value], "torch._dynamo" in sys.modules)
"""


def torchs(recipe: Recipe, parameters: list[Tensor]) -> torch.optim.Optimizer:
    rate, decay, momentum = recipe.learning_rate, recipe.weight_decay, recipe.momentum
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, fused=True)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
    nesterov = momentum > 0 and recipe.optimizer == "sgd"
    return torch.optim.SGD(
        parameters, lr=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay, fused=True
    )


def weights(make: Callable[[Recipe, list[Tensor]], torch.optim.Optimizer], recipe: Recipe) -> Tensor:
    """Return what five steps make of weights, with the optimiser kept and made anew in their middle."""
    parameter = torch.linspace(-1, 1, 7).requires_grad_()
    optimizer = make(recipe, [parameter])
    for step in range(5):
        if step == 3:
            state = optimizer.state_dict()
            optimizer = make(recipe, [parameter])
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        (parameter - step).pow(4).sum().backward()
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.optimizer} {recipe.momentum}")
def test_their_steps_are_torchs(recipe: Recipe) -> None:
    assert torch.equal(weights(make_optimizer, recipe), weights(torchs, recipe))


@pytest.mark.slow
def test_a_trial_imports_no_compiler() -> None:
    """With checkpoints, which keep the optimiser's state, after every step."""
    trial, command = a_trial(recipe=Recipe(1)).to_json(), [sys.executable, "-c", TRAINS]
    done = subprocess.run(command, input=trial, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['completed'] False"


SHAPES = [(16, 3, 5, 5), (16,), (7, 16), (), (4, 8, 3, 3)]


def parameters(channels_last: bool, members: int = 0) -> list[Tensor]:
    """Parameters with random gradients; with ``members``, a stack of them."""
    draw = torch.Generator().manual_seed(0)
    result = []
    for shape in SHAPES:
        full = (members, *shape) if members else shape
        parameter = nn.Parameter(torch.zeros(full))
        gradient = torch.randn(full, generator=draw)
        if channels_last and len(shape) == 4:  # contiguous in the order of channels_last, in a stack too
            gradient = gradient.movedim(-3, -1).contiguous().movedim(-1, -3)
        parameter.grad = gradient
        result.append(parameter)
    return result


def gradients(given: list[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in given if parameter.grad is not None]


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_norm_after_clipping_is_the_limit(channels_last: bool) -> None:
    given = parameters(channels_last)
    clip(given, 1.5)
    assert torch.cat([g.flatten() for g in gradients(given)]).norm().item() == pytest.approx(1.5, rel=1e-5)


@pytest.mark.parametrize("channels_last", [False, True])
def test_each_member_of_a_stack_is_clipped_by_itself(channels_last: bool) -> None:
    given = parameters(channels_last, members=3)
    for gradient in gradients(given):
        gradient[1] *= 1e-3
    before = [g[1].clone() for g in gradients(given)]
    clip(given, 1.5, stacked=True)
    norms = torch.cat([g.reshape(3, -1) for g in gradients(given)], 1).norm(dim=1)
    assert norms[[0, 2]].tolist() == pytest.approx([1.5, 1.5], rel=1e-5)
    assert all(torch.equal(g[1], old) for g, old in zip(gradients(given), before, strict=True))


@pytest.mark.parametrize("members", [0, 3])
def test_the_order_in_memory_changes_no_bit(members: int) -> None:
    plain, last = parameters(False, members), parameters(True, members)
    assert not all(g.is_contiguous() for g in gradients(last))
    for given in (plain, last):
        clip(given, 0.3, stacked=bool(members))
    assert all(torch.equal(*pair) for pair in zip(gradients(plain), gradients(last), strict=True))


def test_training_with_channels_last_is_usual_training_up_to_rounding() -> None:
    """With a limit that every step exceeds; without it, the weights would differ far more than by rounding."""
    sessions = []
    for channels_last in (False, True):
        numerics = Numerics(channels_last=channels_last)
        recipe = Recipe(2, batch_size=16, clip_norm=0.05, learning_rate=0.5, numerics=numerics)
        trial = a_trial(recipe=recipe, regime=IMAGES, model=Model("convnet", {"width": 4}))
        sessions.append(Session.prepare(trial))
        sessions[-1].advance()
    plain, last = (session.weights() for session in sessions)
    assert all(torch.allclose(value, last[name], atol=1e-4) for name, value in plain.items())
