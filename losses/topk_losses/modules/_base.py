"""What the loss modules share."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from topk_losses._core.checks import check_counts, check_k, check_margin, check_per_class, check_reduction

__all__ = ["Loss", "TopKHingeLoss", "TopKLoss", "check_values"]


class Loss(nn.Module):
    """What all losses share: class weights, ignored labels, the reduction, and a readable ``repr``."""

    weight: Tensor | None
    margin: float | Tensor

    def __init__(self, weight: Tensor | None, ignore_index: int, reduction: str) -> None:
        super().__init__()
        check_reduction(reduction)
        if weight is not None:
            check_per_class("weight", weight)
            check_values("weight", weight, at_least=0.0)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction

    @property
    def _shared(self) -> dict[str, Any]:
        """The arguments that every function takes."""
        return {"weight": self.weight, "ignore_index": self.ignore_index, "reduction": self.reduction}

    def _set_margin(self, margin: float | Tensor) -> None:
        check_margin(margin)
        if isinstance(margin, Tensor):
            check_values("margin", margin)
            self.register_buffer("margin", margin)
        else:
            self.margin = margin

    def _set_counts(self, class_counts: Tensor | Sequence[int]) -> None:
        counts = torch.as_tensor(class_counts)
        check_counts(counts, look=True)
        self.register_buffer("class_counts", counts)

    def extra_repr(self) -> str:
        """The constructor's arguments, tensors by their shape."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        shown = [name for name in names if name != "weight" or self.weight is not None]
        return ", ".join(f"{name}={_brief(getattr(self, name))}" for name in shown)


class TopKLoss(Loss):
    """A loss whose only parameter is K."""

    def __init__(
        self,
        k: int,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        self.k = k


class TopKHingeLoss(TopKLoss):
    """A loss whose parameters are K and a margin."""

    def __init__(
        self,
        k: int,
        margin: float | Tensor = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(k, weight=weight, ignore_index=ignore_index, reduction=reduction)
        self._set_margin(margin)


def _brief(value: object) -> str:
    return f"tensor{tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def check_values(name: str, values: Tensor, at_least: float = -math.inf) -> None:
    """Finite values of at least a bound; this waits for the device and is for constructors."""
    wrong = values[~(torch.isfinite(values) & (values >= at_least))]
    if wrong.numel():
        rule = "finite" if at_least == -math.inf else f"finite and at least {at_least:g}"
        raise ValueError(f"{name} must be {rule} for every class, got {wrong[0].item()}")
