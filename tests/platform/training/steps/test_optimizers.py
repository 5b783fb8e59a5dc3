"""Our optimisers are torch's to the bit, and neither they nor a trial import torch's compiler, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from topk_platform import Recipe
from topk_platform.specs import Trial
from topk_platform.training.steps.optim import make_optimizer

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
def test_a_trial_imports_no_compiler(make_trial: Callable[..., Trial]) -> None:
    """With checkpoints, which keep the optimiser's state, after every step."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINS],
        input=make_trial(recipe=Recipe(1)).to_json(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['completed'] False"
