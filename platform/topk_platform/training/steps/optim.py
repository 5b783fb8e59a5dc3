"""Optimisers and learning-rate schedules by name, and what surrounds one gradient step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from topk_platform.specs import Recipe

__all__ = [
    "ColumnOptimizer",
    "clip",
    "density_of",
    "effective_weights",
    "learning_rate",
    "make_optimizer",
    "optimizer_state",
    "precision",
]

_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # torch's defaults of Adam


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of torch's optimisers without the decorator that excludes it from torch's compiler.

    The decorator imports the compiler, which takes two seconds in every process. No optimiser is compiled here.
    """
    inner: Callable[..., Any] = getattr(function, "__wrapped__", function)
    return inner


class _Eager(torch.optim.Optimizer):
    add_param_group = _eager(torch.optim.Optimizer.add_param_group)
    zero_grad = _eager(torch.optim.Optimizer.zero_grad)
    state_dict = _eager(torch.optim.Optimizer.state_dict)
    load_state_dict = _eager(torch.optim.Optimizer.load_state_dict)


class _SGD(_Eager, torch.optim.SGD):
    step = torch.no_grad()(_eager(torch.optim.SGD.step))


class _Adam(_Eager, torch.optim.Adam):
    step = torch.no_grad()(_eager(torch.optim.Adam.step))


def make_optimizer(recipe: Recipe, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return the recipe's optimiser over ``parameters``."""
    rate, decay = recipe.learning_rate, recipe.weight_decay
    match recipe.optimizer:
        case "adam" | "adamw":
            decoupled = recipe.optimizer == "adamw"
            return _Adam(
                parameters, lr=rate, weight_decay=decay, decoupled_weight_decay=decoupled, fused=True
            )
        case "sgd" | "heavy_ball":
            nesterov = recipe.optimizer == "sgd" and recipe.momentum > 0
            return _SGD(
                parameters,
                lr=rate,
                momentum=recipe.momentum,
                nesterov=nesterov,
                weight_decay=decay,
                fused=True,
            )
    raise ValueError(f"no optimizer is called {recipe.optimizer!r}")


class ColumnOptimizer(_Eager):
    """The optimiser of several recipes on stacked weights ``(members, ...)``, each member by its own values.

    Values are columns ``(members,)``, which one update of all members reads. They may differ in the learning rate, the
    weight decay and the momentum; all members have one kind of optimiser. A member's update is that of
    :func:`make_optimizer` alone; only the rounding differs.

    Args:
        recipes: The recipe of each member.
        weights: The stacked weights.
    """

    def __init__(self, recipes: Sequence[Recipe], weights: Iterable[Tensor]) -> None:
        weights = list(weights)
        self._kind = recipes[0].optimizer
        self._momentum = any(recipe.momentum for recipe in recipes)
        column = partial(torch.tensor, device=weights[0].device)
        values = {
            "lr": column([recipe.learning_rate for recipe in recipes]),
            "weight_decay": column([recipe.weight_decay for recipe in recipes]),
            "momentum": column([recipe.momentum for recipe in recipes]),
        }
        super().__init__(weights, values)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all members."""
        del closure
        (group,) = self.param_groups
        for weights in group["params"]:
            if weights.grad is not None:
                shape = (-1, *[1] * (weights.ndim - 1))
                lr, decay, momentum = (
                    group[name].to(weights.device).view(shape) for name in ("lr", "weight_decay", "momentum")
                )
                match self._kind:
                    case "adam" | "adamw":
                        self._adam(weights, weights.grad, lr, decay)
                    case "sgd" | "heavy_ball":
                        self._sgd(weights, weights.grad, lr, decay, momentum)
                    case _:
                        raise ValueError(f"no optimizer of several recipes is called {self._kind!r}")

    def _sgd(self, weights: Tensor, gradient: Tensor, lr: Tensor, decay: Tensor, momentum: Tensor) -> None:
        state = self.state[weights]
        gradient.addcmul_(weights, decay)
        if self._momentum:
            if not state:
                state["momentum_buffer"] = gradient.clone()
            else:
                state["momentum_buffer"].mul_(momentum).add_(gradient)
            if self._kind == "sgd":  # Nesterov's; without momentum it is the gradient
                gradient.addcmul_(state["momentum_buffer"], momentum)
            else:
                gradient = state["momentum_buffer"]
        weights.addcmul_(gradient, lr, value=-1)

    def _adam(self, weights: Tensor, gradient: Tensor, lr: Tensor, decay: Tensor) -> None:
        state = self.state[weights]
        if not state:
            state |= {name: torch.zeros_like(weights) for name in ("exp_avg", "exp_avg_sq")} | {"step": 0}
        if self._kind == "adamw":
            weights.mul_(1 - lr * decay)
        else:
            gradient.addcmul_(weights, decay)
        state["step"] += 1
        first, second = (1 - beta ** state["step"] for beta in _BETAS)
        state["exp_avg"].lerp_(gradient, 1 - _BETAS[0])
        state["exp_avg_sq"].mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        scale = (state["exp_avg_sq"].sqrt() / math.sqrt(second)).add_(_EPSILON)
        weights.sub_((state["exp_avg"] * (lr / first)).div_(scale))


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Return the learning rate of one step.

    ``cosine``: ``lr · (1 + cos(π · step / steps)) / 2``; ``milestones``: ``lr · decay^m`` when m milestones have
    passed; ``constant``: ``lr``. During the warm-up, the rate is multiplied by the share of the warm-up that has
    passed.

    Args:
        recipe: The recipe, with the schedule.
        step: The step, from 0.
        steps: The number of steps of the whole training.

    Example:
        >>> recipe = Recipe(epochs=4, learning_rate=1.0, schedule="milestones", milestones=(2, 3))
        >>> [round(learning_rate(recipe, step, 8), 4) for step in range(8)]
        [1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    per_epoch = steps / recipe.epochs
    rate = recipe.learning_rate * _share(recipe, step / per_epoch, step / steps)
    warmup = recipe.warmup * per_epoch
    return rate * min(1.0, (step + 1) / warmup) if warmup else rate


def _share(recipe: Recipe, epoch: float, progress: float) -> float:
    match recipe.schedule:
        case "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        case "milestones":
            return recipe.decay ** sum(epoch >= milestone for milestone in recipe.milestones)
    return 1.0


def effective_weights(class_counts: Tensor, beta: float = 0.9999) -> Tensor:
    """Return class weights that are inverse to the classes' effective numbers of samples, with mean 1.

    ``w_c ∝ (1 - β) / (1 - β^{n_c})``; a class without samples weighs as much as one with a single sample.

    Args:
        class_counts: int64 ``(L,)``.
        beta: In ``[0, 1)``; at 0 all classes weigh the same.

    Source:
        Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019.

    Example:
        >>> effective_weights(torch.tensor([1000, 10])).tolist()  # doctest: +NUMBER
        [0.0207, 1.979]
    """
    number = 1 - beta ** class_counts.clamp(min=1).double()
    weights = (1 - beta) / number
    return (weights * len(weights) / weights.sum()).float()


def precision(device: str, bfloat16: bool) -> torch.autocast:
    """Return the context for a network's forward pass: autocast to bfloat16, or no change."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=bfloat16, cache_enabled=False)


def clip(parameters: Iterable[Tensor], norm: float, stacked: bool = False) -> None:
    """Scale gradients down in place if their norm is above a limit; in a stack, for each member by itself.

    Args:
        parameters: The parameters, with their gradients.
        norm: The largest norm that is not scaled down.
        stacked: Whether the first dimension counts the members.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    members = [g if stacked else g[None] for g in gradients]
    total = torch.stack([_norms(g.float(), stacked) for g in members]).norm(dim=0)
    factor = (norm / (total + 1e-6)).clamp(max=1)
    for g in members:
        # Not on the flattened gradient: that is a copy if the memory has another order, as with channels_last.
        g.mul_(factor.view(-1, *[1] * (g.dim() - 1)))


def _norms(gradient: Tensor, stacked: bool) -> Tensor:
    """Return the norm of each member's gradient; that of images' filters does not depend on the order in memory."""
    if stacked and gradient.ndim == 3:  # linear layers, whose order in a stack is always the same
        norms: Tensor = torch.linalg.matrix_norm(gradient)
    else:
        norms = gradient.reshape(len(gradient), -1).norm(dim=1)
    return norms


def density_of(gradient: Tensor) -> Tensor:
    """Return the mean number of entries that are not 0 in a row of a gradient ``(..., N, L)``, float64 ``(...)``."""
    return (gradient != 0).sum(-1).double().mean(-1)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the optimiser's state with copies of its tensors."""
    state: dict[str, Any] = optimizer.state_dict()
    copied = {
        index: {name: value.clone() if isinstance(value, Tensor) else value for name, value in entry.items()}
        for index, entry in state["state"].items()
    }
    return {"state": copied, "param_groups": state["param_groups"]}
