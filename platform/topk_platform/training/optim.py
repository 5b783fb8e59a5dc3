"""Optimisers and learning-rate schedules by name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from topk_platform.specs import Recipe, Scalar

__all__ = ["SEARCHABLE", "learning_rate", "make_optimizer", "searched_recipe", "split_parameters"]

SEARCHABLE = ("learning_rate", "weight_decay", "momentum", "batch_size")
"""The fields of a recipe that a loss's space may hold."""


def split_parameters(parameters: Mapping[str, Scalar]) -> tuple[dict[str, Scalar], dict[str, Scalar]]:
    """Return the recipe's part of ``parameters`` and the loss's own.

    Example:
        >>> split_parameters({"learning_rate": 0.1, "tau": 1.0})
        ({'learning_rate': 0.1}, {'tau': 1.0})
    """
    recipe = {name: value for name, value in parameters.items() if name in SEARCHABLE}
    own = {name: value for name, value in parameters.items() if name not in SEARCHABLE}
    return recipe, own


def searched_recipe(recipe: Recipe, parameters: Mapping[str, Any]) -> Recipe:
    """Return the recipe with its searched fields set."""
    return dataclasses.replace(recipe, **parameters)


def make_optimizer(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the recipe's optimiser over ``parameters``."""
    if recipe.optimizer == "adam":
        return torch.optim.Adam(
            parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
        )
    return torch.optim.SGD(
        parameters,
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.momentum > 0,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Return the learning rate of one step.

    ``cosine``: ``lr · (1 + cos(π · step / steps)) / 2``; ``constant``: ``lr``.

    Args:
        recipe: Says which schedule.
        step: From 0.
        steps: Of the whole training.
    """
    if recipe.schedule == "constant":
        return recipe.learning_rate
    return recipe.learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
