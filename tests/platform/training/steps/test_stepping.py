"""Clipping of gradients: what is too long gets the limit's length, whatever the order in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from topk_platform import Model, Numerics, Recipe, Regime
from topk_platform.specs import Trial
from topk_platform.training import Session
from topk_platform.training.steps.stepping import clip

SHAPES = [(16, 3, 5, 5), (16,), (7, 16), (), (4, 8, 3, 3)]
IMAGES = Regime(
    "images",
    "synthetic_images",
    options={"classes": 4, "superclasses": 2, "train": 24, "validation": 8, "test": 8},
)


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


def test_training_with_channels_last_is_usual_training_up_to_rounding(
    make_trial: Callable[..., Trial],
) -> None:
    """With a limit that every step exceeds; without it, the weights would differ far more than by rounding."""
    sessions = []
    for channels_last in (False, True):
        numerics = Numerics(channels_last=channels_last)
        recipe = Recipe(2, batch_size=16, clip_norm=0.05, learning_rate=0.5, numerics=numerics)
        trial = make_trial(recipe=recipe, regime=IMAGES, model=Model("convnet", {"width": 4}))
        sessions.append(Session.prepare(trial))
        sessions[-1].train_epoch()
    plain, last = (session.weights() for session in sessions)
    assert all(torch.allclose(value, last[name], atol=1e-4) for name, value in plain.items())
