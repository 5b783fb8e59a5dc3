"""Losses built from a trial's parameters and its training data, and checked before a study starts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from topk_platform.errors import UserError, as_user_error, unknown_name
from topk_platform.references import check_arguments, look_up, signature_of
from topk_platform.specs import SEARCHABLE, Loss, Parameter, Recipe, Scalar, Schedule, numbers
from topk_platform.training.loss_table import LOSSES

__all__ = [
    "BoundLoss",
    "build_loss",
    "check_loss",
    "check_parameters",
    "takes_class_counts",
]

_GIVEN = ("k", "class_counts")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class BoundLoss:
    """A loss with its own random stream, for losses that draw random numbers, and with deferred class weights.

    Args:
        module: The module of epoch 0. It is called as ``module(scores, target)``, and with ``generator=`` if its
            ``forward`` has that parameter.
        generator: The loss's random stream.
        weights: The class weights that :meth:`reweight` sets, ``(L,)``, or None.
        in_epoch: Returns the module of an epoch, for a loss with a schedule; None if all epochs have the same one.
        remembers: Whether the loss remembers each training sample. It is then called with the samples' positions in
            the training split, ``index=``.
    """

    def __init__(
        self,
        module: nn.Module,
        generator: Generator,
        weights: Tensor | None = None,
        in_epoch: Callable[[int], nn.Module] | None = None,
        *,
        remembers: bool = False,
    ) -> None:
        self.module = module
        self.generator = generator
        self.weights = weights
        self.in_epoch, self.epoch = in_epoch, 0
        self.remembers = remembers
        self.draws = "generator" in inspect.signature(module.forward).parameters
        self._keywords: dict[str, Any] = {"generator": generator} if self.draws else {}

    def __call__(self, scores: Tensor, target: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the batch's mean loss.

        Args:
            scores: ``(N, L)``.
            target: The labels.
            rows: The samples' positions in the training split, for a loss that remembers them.
        """
        if self.remembers:
            return cast("Tensor", self.module(scores, target, index=rows))
        return cast("Tensor", self.module(scores, target, **self._keywords))

    @property
    def separable(self) -> bool:
        """Whether one call can compute the losses of several networks' batches; true for our own losses."""
        ours = type(self.module).__module__.partition(".")[0] in ("topk_losses", "topk_platform")
        return ours and self.weights is None

    def per_sample(self, scores: Tensor, target: Tensor, generators: Sequence[Generator]) -> Tensor:
        """Return each sample's loss of a separable loss; if it draws random numbers, each network has a generator."""
        for module in self.module.modules():
            if hasattr(module, "reduction"):
                module.reduction = "none"  # type: ignore[assignment]
        losses: Tensor = self.module(scores, target, **({"generator": generators} if self.draws else {}))
        return losses

    def begin(self, epoch: int, *, reweighted: bool) -> None:
        """Set the loss up for an epoch. It does not matter which epoch came before.

        A loss with a schedule is built again for every epoch, because its other tensors may depend on its parameters.

        Args:
            epoch: From 0.
            reweighted: Whether the classes have the weights ``weights``.
        """
        if self.in_epoch is not None and epoch != self.epoch:
            self.module, self.epoch = self.in_epoch(epoch), epoch
        if reweighted:
            self.reweight()

    def load_state(self, state: dict[str, Any], epoch: int) -> None:
        """Restore a module's state.

        Args:
            state: The module's ``state_dict``.
            epoch: The epoch in which the state was taken, from 0.
        """
        came_later = state.keys() - self.module.state_dict().keys()
        self.begin(epoch, reweighted=bool(came_later))  # only the class weights are added later
        self.module.load_state_dict(state)

    def reweight(self) -> None:
        """Give the classes the weights ``weights`` from now on."""
        for module in _weighted(self.module):
            module.weight = self.weights  # type: ignore[assignment]


def _weighted(module: nn.Module) -> list[nn.Module]:
    return [m for m in module.modules() if "weight" in m._buffers]


def takes_class_counts(loss: Loss) -> bool:
    """Return whether the loss depends on the training samples per class."""
    return "class_counts" in inspect.signature(look_up("loss", loss.name, LOSSES)).parameters


def build_loss(loss: Loss, parameters: Mapping[str, Scalar], k: int, class_counts: Tensor) -> nn.Module:
    """Return the loss with these parameters.

    The function behind the name is given ``k`` and ``class_counts`` where it takes them.

    Args:
        loss: The spec.
        parameters: Its own parameters.
        k: The K it trains for.
        class_counts: Training samples per class, int64 ``(L,)``.
    """
    function = look_up("loss", loss.name, LOSSES)
    takes = inspect.signature(function).parameters
    given = {name: value for name, value in zip(_GIVEN, (k, class_counts), strict=True) if name in takes}
    return function(**given, **parameters)


def check_loss(
    loss: Loss, own: Mapping[str, Parameter], k: int, class_counts: Tensor, recipe: Recipe | None = None
) -> None:
    """Raise ``UserError`` unless the loss exists, takes these parameters and can be built from the first values.

    Args:
        loss: The spec.
        own: The loss's own parameters: the fixed ones and the first trial's. A schedule is tried at both ends.
        k: The K it trains for.
        class_counts: Training samples per class.
        recipe: The recipe. If it mixes batches, the loss must take soft labels; if it defers class weights, the loss
            must have them.
    """
    check_parameters(loss, own)
    with as_user_error(f"loss {loss.label}"):
        try:
            module, _ = (build_loss(loss, numbers(own, end, 2), k, class_counts) for end in (0, 1))
        except (TypeError, ValueError) as error:  # the loss refuses a value
            raise UserError(f"loss {loss.label}: {error}") from error
    changing = [name for name, value in own.items() if isinstance(value, Schedule)]
    if changing and isinstance(module, nn.Module) and (lost := _lost_when_rebuilt(loss, module)):
        raise UserError(
            f"loss {loss.label}: {changing} cannot follow a schedule, because the loss is then built for every epoch, "
            f"and it has {lost}"
        )
    if recipe is not None:
        _check_recipe(loss, module, len(class_counts), recipe)


def _lost_when_rebuilt(loss: Loss, module: nn.Module) -> str:
    """Return the state that a loss would lose if it were built again; empty if it has none."""
    if next(module.parameters(), None) is not None:
        return "parameters that are trained"
    return "a memory of each training sample" if loss.remembers else ""


def _check_makes(name: str, function: Callable[..., nn.Module], given: Mapping[str, Any]) -> None:
    """Raise ``UserError`` if a loss's function is itself a module, or a function of scores and labels."""
    if isinstance(function, nn.Module):
        raise UserError(
            f"loss {name} must be a function or a class that returns a torch.nn.Module, got a "
            f"{type(function).__name__}: wrap it, def loss(): return ..."
        )
    takes = signature_of("loss", name, function).parameters
    needed = [
        taken.name for taken in takes.values() if taken.default is taken.empty and taken.kind not in _VARIADIC
    ]
    lacking = [taken for taken in needed if taken not in given]
    if lacking and given.keys() <= takes.keys():
        raise UserError(
            f"loss {name} must take k, class_counts and the parameters in Loss.fixed and space, and return a "
            f"torch.nn.Module; its {lacking} get no value: wrap a plain function of scores and labels in a class "
            "whose forward(scores, labels) calls it"
        )


def check_parameters(loss: Loss, own: Mapping[str, Parameter]) -> None:
    """Raise ``UserError`` unless the loss exists and its function takes these parameters. The function is not called.

    Args:
        loss: The spec.
        own: The loss's own parameters.
    """
    function = look_up("loss", loss.name, LOSSES)
    if reserved := sorted(set(own) & set(_GIVEN)):
        raise UserError(
            f"loss {loss.label}: {reserved} come from the arm and the data, not from fixed or space"
        )
    takes = signature_of("loss", loss.name, function).parameters
    given = {**own, **{name: None for name in _GIVEN if name in takes}}
    _check_makes(loss.name, function, given)
    if not any(taken.kind is taken.VAR_KEYWORD for taken in takes.values()):
        for name in own.keys() - takes.keys():
            raise unknown_name(f"parameter: loss {loss.name} has no", name, {*takes, *SEARCHABLE} - {*_GIVEN})
    check_arguments("loss", loss.name, function, given)


def _check_recipe(loss: Loss, module: nn.Module, classes: int, recipe: Recipe) -> None:
    if recipe.reweighting is not None and not _weighted(module):
        raise UserError(
            f"loss {loss.label}: Recipe.reweighting needs a loss with class weights, a buffer 'weight'"
        )
    if recipe.augmentation.mix:
        _check_soft_labels(loss, module, classes, recipe.augmentation.mix)


def _check_soft_labels(loss: Loss, module: nn.Module, classes: int, mix: str) -> None:
    refused = f"loss {loss.label}: {mix} makes soft labels, which it does not take"
    if loss.remembers:
        raise UserError(f"{refused}: it remembers each training sample, and a mixture is not one of them")
    try:
        module(torch.zeros(1, classes), torch.full((1, classes), 1 / classes))
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{refused} ({error})") from error
