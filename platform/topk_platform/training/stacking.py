"""A stack of networks of one shape: its weights, its forward pass, its optimiser, and its losses in one call."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, vmap

from topk_platform.data import Dataset
from topk_platform.errors import UserError
from topk_platform.specs import Recipe, Scalar, Trial, numbers
from topk_platform.training.loss_table import LOSSES
from topk_platform.training.losses import BoundLoss, build_loss, takes_class_counts
from topk_platform.training.steps.batches import (
    Normalisation,
)
from topk_platform.training.steps.optim import ColumnOptimizer, make_optimizer

__all__ = [
    "Forward",
    "Together",
    "check_ensemble",
    "losses_together",
    "stack",
    "stacked_forward",
    "stacked_normalisation",
    "stacked_optimizer",
]

_RANDOM = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def check_ensemble(model: nn.Module, recipe: Recipe, searched: Sequence[str]) -> None:
    """Raise ``UserError`` unless networks of one shape can train as a stack with the same results as alone.

    Args:
        model: One of the networks.
        recipe: The recipe.
        searched: The parameters of the recipe and the loss that differ between the networks.
    """
    if next(model.buffers(), None) is not None or any(isinstance(m, _RANDOM) for m in model.modules()):
        raise UserError("an ensemble's network must have neither buffers (batch normalisation) nor dropout")
    if any(m._backward_hooks or m._backward_pre_hooks for m in model.modules()) or any(
        p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters()
    ):
        raise UserError("an ensemble's network must have no hooks on gradients, which a stack would not call")
    if "batch_size" in searched:
        raise UserError("an ensemble's members must have one batch_size; it cannot be searched")
    if recipe.numerics.channels_last:
        raise UserError("an ensemble's network cannot be channels_last")


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
    # The copy's layers share nothing any more.
    base, aliases = copy.deepcopy(network).to("meta"), _aliases(network)

    def scored(weights: dict[str, Tensor], batch: Tensor) -> Tensor:
        scores: Tensor = functional_call(base, {n: weights[same] for n, same in aliases.items()}, (batch,))
        return scores

    def forward(inputs: Tensor, shared: bool) -> Tensor:
        scores: Tensor = vmap(scored, in_dims=(0, None if shared else 0))(dict(stacked), inputs)
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


class _Scale(NamedTuple):
    """A loss's parameter t with ``L(s; t) = t · L(s / t; 1)``, and how a margin is part of the scores, if it has one.

    Args:
        name: The parameter's name.
        shift: Returns what a loss without a margin takes from the label's score in place of a margin, given K and the
            margin; None for a loss without one.
    """

    name: str
    shift: Callable[[int, float], float] | None = None


_SCALES: Mapping[str, _Scale] = {
    "calibrated_topk_hinge": _Scale("margin"),
    "convex_topk_hinge": _Scale("margin"),
    "cross_entropy": _Scale("temperature"),
    # α - s_y / K is -(s_y - K α) / K
    "smooth_topk_svm": _Scale("tau", lambda k, margin: k * margin),
    "topk_hinge": _Scale("margin"),
}
_MARGIN = "margin"


@dataclass(frozen=True)
class Together:
    """One call of a loss for all members.

    Args:
        loss: The loss: that of each member, or that with t = 1 and without a margin.
        scale: Each member's t, ``(members, 1, 1)``; None if all members have the same loss.
        shift: What is taken from the score of the label, over t, likewise; None without a margin.
    """

    loss: BoundLoss
    scale: Tensor | None = None
    shift: Tensor | None = None

    def __call__(self, scores: Tensor, target: Tensor, generators: Sequence[Generator]) -> Tensor:
        """Return the mean losses of scores ``(members, n, L)`` and labels ``(members, n)``, ``(members,)``."""
        shape = scores.shape[:2]
        if self.scale is not None:
            scores = scores / self.scale
        if self.shift is not None:
            scores = scores.scatter_add(2, target[:, :, None], -self.shift.expand(*shape, 1))
        flat = self.loss.per_sample(scores.flatten(0, 1), target.flatten(0, 1), generators)
        losses = flat.view(shape).mean(1)
        return losses if self.scale is None else losses * self.scale.view(-1)


def losses_together(
    trials: Sequence[Trial], datasets: Sequence[Dataset], losses: Sequence[BoundLoss], epoch: int
) -> Together | None:
    """Return the losses of an ensemble's members as one call in an epoch, or None if they need one each.

    Args:
        trials: The trials.
        datasets: Their data.
        losses: Their losses in this epoch.
        epoch: From 0.
    """
    arm = trials[0].arm
    counts = [dataset.class_counts for dataset in datasets]
    same = not takes_class_counts(arm.loss) or all(torch.equal(count, counts[0]) for count in counts)
    if not (same and all(loss.separable for loss in losses)):
        return None
    own = [numbers(trial.setting.own, epoch, arm.recipe.epochs) for trial in trials]
    if all(values == own[0] for values in own):
        return Together(losses[0])
    if (scale := _SCALES.get(arm.loss.name)) is None:
        return None
    values = [_with_defaults(arm.loss.name, given) for given in own]
    of_scale = {scale.name} | ({_MARGIN} if scale.shift else set())
    rest = [{name: value for name, value in each.items() if name not in of_scale} for each in values]
    if any(others != rest[0] for others in rest) or any(float(each[scale.name]) <= 0 for each in values):
        return None
    unit: dict[str, Any] = {**rest[0], scale.name: 1.0, **({_MARGIN: 0.0} if scale.shift else {})}
    module = build_loss(arm.loss, unit, arm.k, counts[0]).to(trials[0].device)
    scales = _column([float(each[scale.name]) for each in values], trials[0].device)
    shifts = None
    if scale.shift is not None:
        shifts = (
            _column([scale.shift(arm.k, float(each[_MARGIN])) for each in values], trials[0].device) / scales
        )
    return Together(BoundLoss(module, losses[0].generator), scales, shifts)


def _with_defaults(loss: str, own: Mapping[str, Scalar]) -> dict[str, Any]:
    takes = inspect.signature(LOSSES[loss]).parameters.values()
    return {p.name: p.default for p in takes if p.default is not p.empty} | dict(own)


def _column(values: Sequence[float], device: str) -> Tensor:
    return torch.tensor(values, device=device)[:, None, None]


def stacked_normalisation(normalisations: Sequence[Normalisation | None]) -> tuple[Tensor, Tensor] | None:
    """Return the shifts and scales of all members, ``(members, 1, channels, 1, 1)``."""
    given = [n for n in normalisations if n is not None]
    if not given:
        return None
    shifts, scales = (
        torch.stack(parts)[:, None] for parts in zip(*((n.shift, n.scale) for n in given), strict=True)
    )
    return shifts, scales
