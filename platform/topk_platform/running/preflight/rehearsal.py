"""A rehearsal before anything starts: one step of each arm's model and loss on a few samples, on the CPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from topk_platform.data import Images, Source
from topk_platform.errors import UserError, as_user_error
from topk_platform.models import MODELS, build_model
from topk_platform.references import is_reference, look_up
from topk_platform.specs import Arm, numbers
from topk_platform.training.loss_table import LOSSES
from topk_platform.training.losses import BoundLoss, build_loss
from topk_platform.training.process import restored_process
from topk_platform.training.stacking import stack, stacked_forward

__all__ = ["Rehearsal"]

_SAMPLES = 4
_ROUNDING = 1e-4  # tolerance for a sum of probabilities
_MOST_PARAMETERS = 2**25  # a step of a larger network takes seconds; ResNet-50 has 25.6 million


class Rehearsal:
    """Tries one training step of each arm; models and losses that arms share are tried once.

    So an error in an arm's code at its first step is reported in one line. The process's state is restored.
    """

    def __init__(self) -> None:
        self._scores: dict[Any, Tensor] = {}

    def __call__(self, arm: Arm, dataset: Source, class_counts: Tensor) -> None:
        """Raise ``UserError``, naming the arm and the line of its code, unless a step of the arm works."""
        together = arm.protocol.ensemble > 1
        same = repr((arm.regime.dataset, arm.regime.options, arm.model, arm.loss.head, together))
        if same in self._scores and not is_reference(arm.loss.name):
            return
        inputs, labels = _few(dataset)
        with restored_process():
            torch.manual_seed(0)
            if same not in self._scores:
                self._scores[same] = _scores(arm, inputs, dataset)
            if is_reference(arm.loss.name):  # our own losses are tested, and some take a second to compile
                _check_loss(arm, self._scores[same], labels, class_counts)


def _few(dataset: Source) -> tuple[Tensor, Tensor]:
    """Return a few training inputs, as networks take them, and their labels; black images for images in files."""
    data = dataset.example
    labels = data.train.labels[:_SAMPLES]
    if isinstance(data.train.inputs, Images):
        return torch.zeros(len(labels), *data.shape), labels
    inputs = data.train.inputs[:_SAMPLES].clone()
    return (inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs), labels


def _scores(arm: Arm, inputs: Tensor, dataset: Source) -> Tensor:
    """Return the scores of an arm's network, after checking that they can be differentiated."""
    subject = f"arm {arm.name}: model {arm.model.name}{_location(look_up('model', arm.model.name, MODELS))}"
    with as_user_error(subject):
        network: object = build_model(arm.model, dataset.shape, dataset.classes, arm.loss.head)
    if not isinstance(network, nn.Module):
        raise UserError(f"{subject} must return a torch.nn.Module, got {_described(network)}")
    expected = (len(inputs), dataset.classes)
    if sum(parameter.numel() for parameter in network.parameters()) > _MOST_PARAMETERS:
        return torch.randn(expected)
    whole = "" if inputs.is_floating_point() else ", which it gets unconverted (inputs.float() makes it real)"
    with as_user_error(f"{subject}, called with {_described(inputs)}{whole},"):
        scores: object = network(inputs)
    checked = _checked_scores(subject, scores, expected)
    with as_user_error(f"{subject}, differentiated,"):
        checked.sum().backward()  # type: ignore[no-untyped-call]
    if arm.protocol.ensemble > 1:
        _check_stack(subject, network, inputs)
    return checked.detach().float()


def _checked_scores(subject: str, scores: object, expected: tuple[int, int]) -> Tensor:
    """Return a network's scores; raise ``UserError`` unless they are finite real numbers of the expected shape."""
    if not isinstance(scores, Tensor) or scores.shape != expected or not scores.is_floating_point():
        raise UserError(f"{subject} must give scores of shape {expected}, got {_described(scores)}")
    if not scores.isfinite().all():
        raise UserError(f"{subject} must give finite scores, got NaN or infinity")
    if (scores >= 0).all() and (scores.sum(1) - 1).abs().max() < _ROUNDING:
        raise UserError(
            f"{subject} must give scores, any real numbers, got probabilities, which sum to 1: leave out its softmax"
        )
    if not scores.requires_grad:
        raise UserError(f"{subject} must give scores that depend on its parameters, got none that does")
    return scores


def _check_stack(subject: str, network: nn.Module, inputs: Tensor) -> None:
    """Raise ``UserError`` if a network cannot be one of a stack, for instance because it draws random numbers."""
    with as_user_error(
        f"{subject}, in an ensemble's stack of networks (Protocol(ensemble=1) trains each alone),"
    ):
        stacked_forward(network, stack([network], "cpu"))(inputs[None].clone(), False)


def _check_loss(arm: Arm, scores: Tensor, labels: Tensor, class_counts: Tensor) -> None:
    subject = f"arm {arm.name}: loss {arm.loss.name}{_location(look_up('loss', arm.loss.name, LOSSES))}"
    setting = arm.setting(arm.loss.first)
    own = numbers(setting.own, 0, setting.recipe.epochs)
    scores = scores.clone().requires_grad_()
    with as_user_error(subject):
        module: object = build_loss(arm.loss, own, arm.k, class_counts)
    if not isinstance(module, nn.Module):
        raise UserError(f"{subject} must return a torch.nn.Module, got {_described(module)}")
    if "_parameters" not in vars(module):
        raise UserError(f"{subject} must begin its __init__ with super().__init__(), got a module without it")
    with as_user_error(f"{subject}, called with scores {tuple(scores.shape)} and labels {labels.tolist()},"):
        loss: object = (
            module(scores, labels, index=torch.arange(len(labels)))
            if arm.loss.remembers
            else BoundLoss(module, torch.Generator().manual_seed(0))(scores, labels)
        )
    if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
        raise UserError(
            f"{subject} must give the batch's mean loss as a tensor of shape () that depends on the scores, "
            f"got {_described(loss)}"
        )
    if not loss.isfinite():
        raise UserError(
            f"{subject} must give a finite loss, got {loss.item()} of scores {tuple(scores.shape)}"
        )
    with as_user_error(f"{subject}, differentiated,"):
        loss.backward()  # type: ignore[no-untyped-call]


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    kind = str(value.dtype).removeprefix("torch.")
    return (
        f"a {kind} tensor of shape {tuple(value.shape)}{'' if value.requires_grad else ' without gradient'}"
    )


def _location(function: Callable[..., Any]) -> str:
    with suppress(TypeError, OSError):  # built-in functions have no source
        file = inspect.getsourcefile(function)
        return f" ({Path(file).name}:{inspect.getsourcelines(function)[1]})" if file else ""
    return ""
