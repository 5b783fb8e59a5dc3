"""The base class of the loss modules, and how a module follows from its function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

import torch
from torch import Tensor, nn

from topk_losses import functional
from topk_losses._core.checks import check_per_class, check_reduction, has_values

__all__ = ["Loss", "module_of"]

L = TypeVar("L", bound="Loss")


@dataclass_transform(field_specifiers=(field,))
def module_of(function: Callable[..., Tensor]) -> Callable[[type[L]], type[L]]:
    """Decorate a subclass of :class:`Loss` whose fields are the parameters of a loss function after scores and target.

    The fields make the constructor, as in a dataclass. Tensors become buffers. ``forward`` calls the function.
    """

    def decorate(cls: type[L]) -> type[L]:
        cls = _with_constructor(cls)
        cls._function = staticmethod(function)
        return cls

    return decorate


@dataclass_transform(field_specifiers=(field,))
def _with_constructor(cls: type[L]) -> type[L]:
    made: Any = dataclass(eq=False, repr=False)(cls)
    names = tuple(one.name for one in fields(made) if one.init)
    for name in names:
        if name in vars(cls):  # a default that stays on the class would hide the buffer of an instance
            delattr(cls, name)
    cls._names = names
    return cls


@_with_constructor
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
    _function: ClassVar[Callable[..., Tensor] | None] = None
    _names: ClassVar[tuple[str, ...]] = ()

    weight: Tensor | None = field(default=None, kw_only=True)
    ignore_index: int = field(default=-100, kw_only=True)
    reduction: str = field(default="mean", kw_only=True)

    def __post_init__(self) -> None:
        """Check the arguments and make buffers of the tensors."""
        super().__init__()
        check_reduction(self.reduction)
        if self.weight is not None:
            check_per_class("weight", self.weight)
        self.check()
        for name in self._names:
            value = self.__dict__[name]
            if isinstance(value, Tensor):
                check_values(name, value, at_least=0.0 if name == "weight" else -math.inf)
            if isinstance(value, Tensor) or name == "weight":
                del self.__dict__[name]
                self.register_buffer(name, value)

    def check(self) -> None:
        """Refuse arguments of the constructor, before tensors become buffers."""

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
        return self._value(scores, target)

    def _value(self, scores: Tensor, target: Tensor, **changed: Any) -> Tensor:
        """The function of scores and target with the module's arguments, of which some are changed."""
        arguments = {name: getattr(self, name) for name in self._names} | changed
        if self._function is None:
            return functional.reduce_rows(
                self.rows, scores, target, soft_targets=self.soft_targets, **arguments
            )
        return self._function(scores, target, **arguments)

    def extra_repr(self) -> str:
        """Return the constructor's arguments as text; for tensors their shapes."""
        names = [name for name in _parameters(type(self).__init__) if name != "self"]
        shown = [name for name in names if name != "weight" or self.weight is not None]
        return ", ".join(f"{name}={_brief(getattr(self, name))}" for name in shown)


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
