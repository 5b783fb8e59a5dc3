"""One gradient step of a network or of a stack of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

__all__ = ["clip", "density_of", "optimizer_state", "precision"]


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
