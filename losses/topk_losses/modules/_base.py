"""The base class of the loss modules, and how a module follows from its function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

import torch
from torch import Tensor, nn

from topk_losses import functional
from topk_losses._core.checks import (
    check_dimension,
    check_exponent,
    check_k,
    check_margin,
    check_margins,
    check_not_negative,
    check_per_class,
    check_positive,
    check_reduction,
    check_samples,
    check_share,
    has_values,
)

__all__ = [
    "Configured",
    "Dimension",
    "Exponent",
    "K",
    "Loss",
    "Margin",
    "Margins",
    "NotNegative",
    "Positive",
    "Samples",
    "Share",
    "module_of",
]

M = TypeVar("M", bound="Configured")

# The types of fields, each with the check of the field's name and value that the constructor makes.
Positive = Annotated[float, check_positive]
NotNegative = Annotated[float, check_not_negative]
Exponent = Annotated[float, check_exponent]
Share = Annotated[float, check_share]
Dimension = Annotated[int, check_dimension]
K = Annotated[int, lambda _, value: check_k(value)]
Samples = Annotated[int | None, lambda _, value: check_samples(value)]
Margin = Annotated[float | Tensor, lambda _, value: check_margin(value)]
Margins = Annotated[Tensor, lambda _, value: check_margins(value)]
Weight = Annotated[Tensor | None, lambda name, value: value is None or check_per_class(name, value)]
Reduction = Annotated[str, lambda _, value: check_reduction(value)]


@dataclass_transform(field_specifiers=(field,))
def module_of(function: Callable[..., Tensor]) -> Callable[[type[M]], type[M]]:
    """Decorate a module whose fields are the parameters of a loss function after scores and target.

    The fields make the constructor, as in a dataclass, and their types say how it checks them. Tensors become buffers.
    ``forward`` calls the function.
    """

    def decorate(cls: type[M]) -> type[M]:
        cls = _with_constructor(cls)
        cls._function = staticmethod(function)  # type: ignore[method-assign]
        return cls

    return decorate


@dataclass_transform(field_specifiers=(field,))
def _with_constructor(cls: type[M]) -> type[M]:
    made: Any = dataclass(eq=False, repr=False)(cls)
    names = tuple(described.name for described in fields(made) if described.init)
    for name in names:
        if name in vars(cls):  # a default that stays on the class would hide the buffer of an instance
            delattr(cls, name)
    cls._names = names
    checked = get_type_hints(cls, include_extras=True)
    cls._checks = tuple((n, check) for n in names for check in getattr(checked[n], "__metadata__", ()))
    shown = get_type_hints(cls)
    made.__init__.__annotations__ = {name: shown[name] for name in names} | {"return": None}
    return cls


class Configured(nn.Module):
    """The base class of modules that call a function with their fields.

    Attributes:
        soft_targets: Whether the loss accepts probabilities as targets.
    """

    soft_targets: ClassVar[bool] = True
    _names: ClassVar[tuple[str, ...]] = ()
    _checks: ClassVar[tuple[tuple[str, Callable[[str, Any], object]], ...]] = ()

    def __post_init__(self) -> None:
        """Check the arguments and make buffers of the tensors."""
        super().__init__()
        for name, check in self._checks:
            check(name, getattr(self, name))
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

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores and targets."""
        return self._value(scores, target)

    def _value(self, scores: Tensor, target: Tensor, **changed: Any) -> Tensor:
        """The function of scores and target with the module's arguments, of which some are changed."""
        arguments = {name: getattr(self, name) for name in self._names} | changed
        return self._function(scores, target, **arguments)

    def _function(self, scores: Tensor, target: Tensor, **arguments: Any) -> Tensor:
        """What :func:`module_of` replaces."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the constructor's arguments as text; for tensors their shapes."""
        names = [name for name in _parameters(type(self).__init__) if name != "self"]
        shown = [name for name in names if name != "weight" or self.weight is not None]
        return ", ".join(f"{name}={_brief(getattr(self, name))}" for name in shown)


@_with_constructor
class Loss(Configured):
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

    weight: Weight = field(default=None, kw_only=True)
    ignore_index: int = field(default=-100, kw_only=True)
    reduction: Reduction = field(default="mean", kw_only=True)

    def rows(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the losses ``(M, C)`` of scores ``(M, L)`` for labels ``(M, C)``.

        Args:
            scores: float64 if the loss was called with float64 scores, else float32.
            labels: int64 in ``[0, L)``. C is 1 for labels. For soft targets C is L: the base class needs the loss of
                every class to compute the expectation.
        """
        raise NotImplementedError(f"{type(self).__name__} must define rows(scores, labels), or forward")

    def _function(self, scores: Tensor, target: Tensor, **arguments: Any) -> Tensor:
        return functional.reduce_rows(self.rows, scores, target, soft_targets=self.soft_targets, **arguments)


def _parameters(constructor: Callable[..., None]) -> list[str]:
    """Return the names of a constructor's parameters; if it takes ``**options``, those of :class:`Loss` as well."""
    parameters = inspect.signature(constructor).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
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
