"""A stack of networks of one shape: its weights, its forward pass and its optimiser."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from topk_platform.specs import Recipe
from topk_platform.training.steps.optim import ColumnOptimizer, make_optimizer

__all__ = ["Forward", "stack", "stacked_forward", "stacked_optimizer"]

_ELEMENTWISE = (
    nn.ReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.LeakyReLU,
    nn.Softplus,
    nn.Identity,
)

Forward = Callable[[Tensor, bool], Tensor]
"""A function of inputs and of whether the members share them, which returns scores ``(members, n, L)``.

The inputs are ``(members, n, ...)``, or ``(n, ...)`` if they are shared.
"""


def stacked_forward(network: nn.Module, stacked: Mapping[str, Tensor]) -> Forward:
    """Return the forward pass of all members at once.

    A plain chain of linear layers and elementwise functions is computed by batched matrix products that also add the
    bias. On the CPU this is a fifth faster. Any other network goes through ``vmap``.

    Args:
        network: One of the networks.
        stacked: The weights by name, ``(members, ...)``.
    """
    layers = _chain(network)
    return _mapped(network, stacked) if layers is None else _written_out(layers, stacked)


def _aliases(network: nn.Module) -> dict[str, str]:
    """Return the name in the stack of each of a network's parameters; layers may share one."""
    stacked = {parameter: name for name, parameter in network.named_parameters()}
    return {name: stacked[same] for name, same in network.named_parameters(remove_duplicate=False)}


def _chain(network: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """Return the layers with their names, if the network is a plain chain of known layers; else None."""
    if type(network) is not nn.Sequential:
        return None
    layers = list(network.named_children())
    parameters = _aliases(network)
    if len(layers) < len(network) or len({*parameters.values()}) < len(parameters):
        return None  # a module that occurs twice is listed once, as is a parameter that layers share
    # An elementwise layer that works in place would overwrite the samples, or values that a gradient needs.
    known = all(
        type(layer) in (nn.Linear, nn.Flatten)
        or (type(layer) in _ELEMENTWISE and not getattr(layer, "inplace", False))
        for _, layer in layers
    )
    flat = [index for index, (_, layer) in enumerate(layers) if type(layer) is nn.Flatten]
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    return layers if known and flat == [0] and not hooked else None


def _written_out(layers: list[tuple[str, nn.Module]], stacked: Mapping[str, Tensor]) -> Forward:
    def forward(inputs: Tensor, shared: bool) -> Tensor:
        members = len(next(iter(stacked.values())))
        values = inputs.flatten(1).expand(members, -1, -1) if shared else inputs.flatten(2)
        for name, layer in layers[1:]:
            if type(layer) is nn.Linear:
                weight = stacked[f"{name}.weight"].transpose(1, 2)
                bias = stacked.get(f"{name}.bias")
                values = (
                    torch.bmm(values, weight)
                    if bias is None
                    else torch.baddbmm(bias[:, None], values, weight)
                )
            else:
                values = layer(values)
        return values

    return forward


def _mapped(network: nn.Module, stacked: Mapping[str, Tensor]) -> Forward:
    base, aliases = (
        copy.deepcopy(network).to("meta"),
        _aliases(network),
    )  # whose layers share nothing any more

    def one(weights: dict[str, Tensor], batch: Tensor) -> Tensor:
        scores: Tensor = functional_call(base, {n: weights[same] for n, same in aliases.items()}, (batch,))
        return scores

    def forward(inputs: Tensor, shared: bool) -> Tensor:
        scores: Tensor = vmap(one, in_dims=(0, None if shared else 0))(dict(stacked), inputs)
        return scores

    return forward


def stack(networks: Sequence[nn.Module], device: str) -> dict[str, Tensor]:
    """Return the networks' parameters by name, ``(members, ...)``, on the device; frozen ones stay frozen.

    On the CPU, linear layers of a plain chain have the inputs of their weights outermost in memory, as matrix products
    write the gradients. Otherwise each gradient would be copied, which took a fifth of a step.
    """
    parameters = [dict(network.named_parameters()) for network in networks]
    layers = _chain(networks[0]) if device == "cpu" else None
    linear = {f"{name}.weight" for name, layer in layers or [] if type(layer) is nn.Linear}
    result = {}
    for name, first in parameters[0].items():
        values = torch.stack([p[name].detach() for p in parameters]).to(device)
        values = values.mT.contiguous().mT if name in linear else values
        result[name] = values.requires_grad_(first.requires_grad)
    return result


def stacked_optimizer(recipes: Sequence[Recipe], stacked: dict[str, Tensor]) -> torch.optim.Optimizer:
    """Return an optimiser of all members, with columns of their values.

    On a GPU, where each further kernel costs more than its arithmetic, members with one recipe have torch's fused one.
    """
    trained = [weights for weights in stacked.values() if weights.requires_grad]
    if trained[0].is_cuda and all(recipe == recipes[0] for recipe in recipes):
        return make_optimizer(recipes[0], trained)
    return ColumnOptimizer(recipes, trained)
