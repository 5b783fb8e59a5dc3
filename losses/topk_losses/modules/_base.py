"""The base classes of the loss modules."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from topk_losses import functional
from topk_losses._core.checks import (
    check_counts,
    check_k,
    check_margin,
    check_per_class,
    check_reduction,
    has_values,
)

__all__ = ["Loss", "TopKHingeLoss", "TopKLoss", "check_values"]


class Loss(nn.Module):
    """The base class of all losses and of your own: class weights, ignored labels, soft targets and reductions.

    A subclass defines :meth:`rows`, the loss of each row for each of its labels. Everything else behaves as in torch's
    cross-entropy. :class:`~topk_losses.testing.LossContract` tests a subclass.

    Args:
        weight: One factor per class ``(L,)``, kept as a buffer.
        ignore_index: Label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Attributes:
        soft_targets: Whether the loss accepts probabilities as targets.

    Raises:
        ValueError: For weights below 0 and unknown reductions; in ``forward`` for wrong shapes and dtypes, and for
            labels out of range.

    Example:
        >>> import torch
        >>> class Brier(Loss):
        ...     def rows(self, scores, labels):
        ...         return (1 - scores.softmax(1).gather(1, labels)) ** 2
        >>> Brier(ignore_index=0)(torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), torch.tensor([1, 0]))
        tensor(0.5704)
    """

    soft_targets: ClassVar[bool] = True
    weight: Tensor | None
    margin: float | Tensor

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        if weight is not None:
            check_per_class("weight", weight)
            check_values("weight", weight, at_least=0.0)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction

    def rows(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the losses ``(M, C)`` of scores ``(M, L)`` for labels ``(M, C)``.

        Args:
            scores: float64 if the loss was called with float64 scores, else float32.
            labels: int64 in ``[0, L)``. C is 1 for labels. For soft targets C is L: the base class needs the loss of
                every class to compute the expectation.
        """
        raise NotImplementedError(f"{type(self).__name__} must define rows(scores, labels), or forward")

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.reduce_rows(
            self.rows, scores, target, soft_targets=self.soft_targets, **self._shared
        )

    @property
    def _shared(self) -> dict[str, Any]:
        """The arguments that all loss functions take."""
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
        """Return the constructor's arguments as text; for tensors their shapes."""
        names = [name for name in _parameters(type(self).__init__) if name != "self"]
        shown = [name for name in names if name != "weight" or self.weight is not None]
        return ", ".join(f"{name}={_brief(getattr(self, name))}" for name in shown)


class TopKLoss(Loss):
    """A loss whose only parameter is K."""

    def __init__(
        self, k: int, *, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
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


def _parameters(constructor: Callable[..., None]) -> list[str]:
    """Return the names of a constructor's parameters; if it takes ``**options``, those of :class:`Loss` as well."""
    parameters = inspect.signature(constructor).parameters.values()
    named = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    return named if len(named) == len(parameters) else list(dict.fromkeys(named + _parameters(Loss.__init__)))


def _brief(value: object) -> str:
    return f"tensor{tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def check_values(name: str, values: Tensor, at_least: float = -math.inf) -> None:
    """Check that values are finite and at least a bound. For constructors only, since it waits for the device."""
    if not has_values(values):
        return
    wrong = values[~(torch.isfinite(values) & (values >= at_least))]
    if wrong.numel():
        rule = "finite" if at_least == -math.inf else f"finite and at least {at_least:g}"
        raise ValueError(f"{name} must be {rule} for every class, got {wrong[0].item()}")
