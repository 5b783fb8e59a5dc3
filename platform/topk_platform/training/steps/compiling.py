"""Compiled networks, one for all trials of the same shape in a process."""

from __future__ import annotations

import json
from functools import lru_cache

import torch
from torch import nn

from topk_platform.data import Dataset
from topk_platform.models import build_model
from topk_platform.specs import Model, Recipe, Trial, canonical_json

__all__ = ["compiled"]

_KEPT = 4


def compiled(trial: Trial, recipe: Recipe, dataset: Dataset, model: nn.Module) -> nn.Module:
    """Return a compiled network with the weights and buffers of ``model``; the same of its parameters are trained.

    The process compiles a network of this shape once, keeps it, and gives it new weights for later trials. So a network
    must not change any state other than its weights and buffers. A trial may freeze parameters.

    Args:
        trial: The trial, which names the network and the device.
        recipe: The recipe, with the numerics.
        dataset: The dataset, with the inputs' shape.
        model: The network with its initial weights.
    """
    name, options = trial.arm.model.name, canonical_json(trial.arm.model.options)
    shape = (name, options, dataset.shape, dataset.classes, trial.arm.loss.head, trial.device)
    network = _network(*shape, recipe.numerics.channels_last)
    network.load_state_dict(model.state_dict())
    for parameter, initial in zip(network.parameters(), model.parameters(), strict=True):
        parameter.requires_grad_(initial.requires_grad)  # an earlier trial may have frozen it
    network.zero_grad()
    return network


@lru_cache(maxsize=_KEPT)
def _network(
    name: str, options: str, shape: tuple[int, ...], classes: int, head: str, device: str, channels_last: bool
) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        network = build_model(Model(name, json.loads(options)), shape, classes, head).to(device)
    if channels_last:
        network = network.to(memory_format=torch.channels_last)
    network.compile()
    return network
