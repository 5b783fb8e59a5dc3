"""Steps after training that change the last layer of a network and need no further training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from topk_platform.errors import UserError
from topk_platform.specs import LogitAdjustment, Recipe, TauNormalised

__all__ = ["AFTERS", "After", "last_layer"]

After = Callable[[Recipe, Mapping[str, Tensor], str, Tensor], dict[str, Tensor]]
"""A function of a recipe, weights by name, the last layer's name and the training samples per class.

It returns the changed weights, by name.
"""


def last_layer(model: nn.Module, classes: int, bias: bool) -> str:
    """Return the name of a network's last linear layer, whose outputs are the scores.

    Args:
        model: The network.
        classes: L.
        bias: Whether it must have a bias.

    Raises:
        UserError: if there is no such layer.
    """
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    name, layer = linear[-1] if linear else ("", None)
    if layer is None or layer.out_features != classes:
        raise UserError(
            f"Recipe.after needs a network whose last layer is linear with {classes} outputs, got "
            f"{type(model).__name__} with {'no linear layer' if layer is None else f'{layer.out_features} outputs'}"
        )
    if bias and layer.bias is None:
        raise UserError("LogitAdjustment needs a last layer with a bias, which holds the classes' offsets")
    return name


def _logit_adjustment(
    recipe: Recipe, weights: Mapping[str, Tensor], layer: str, class_counts: Tensor
) -> dict[str, Tensor]:
    assert isinstance(recipe.after, LogitAdjustment)  # noqa: S101 - for the type checker: the table's key says so
    counts = class_counts.clamp(min=1).double()  # a class without samples counts as one sample
    offsets = recipe.after.tau * (counts / counts.sum()).log()
    name = f"{layer}.bias"
    adjusted = weights[name].double() - offsets.to(weights[name].device)
    return {**weights, name: adjusted.to(weights[name].dtype)}


def _tau_normalised(
    recipe: Recipe, weights: Mapping[str, Tensor], layer: str, class_counts: Tensor
) -> dict[str, Tensor]:
    del class_counts
    assert isinstance(recipe.after, TauNormalised)  # noqa: S101 - as above
    weight = weights[f"{layer}.weight"]
    norms = weight.double().norm(dim=1, keepdim=True)
    # A row of zeros has no direction to keep. It stays as it is: its scores are 0 before and after.
    divisors = norms.masked_fill(norms == 0, 1) ** recipe.after.tau
    changed = {f"{layer}.weight": (weight.double() / divisors).to(weight.dtype)}
    if f"{layer}.bias" in weights:
        changed[f"{layer}.bias"] = weights[f"{layer}.bias"] * 0
    return {**weights, **changed}


AFTERS: dict[str, After] = {"LogitAdjustment": _logit_adjustment, "TauNormalised": _tau_normalised}
"""The steps by the names of their specs."""
