"""Networks by name, each with a linear or a cosine head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from topk_platform.errors import UserError
from topk_platform.models.heads import feature_head, linear, mlp
from topk_platform.models.vision import (
    convnet,
    densenet,
    densenet121_small,
    find_weights,
    resnet18_small,
    resnet_small,
    torchvision_model,
)
from topk_platform.references import check_arguments, look_up, signature_of
from topk_platform.specs import Model

__all__ = ["MODELS", "architecture_of", "build_model", "check_model"]

MODELS: dict[str, Callable[..., nn.Module]] = {
    "convnet": convnet,
    "densenet": densenet,
    "densenet121_small": densenet121_small,
    "feature_head": feature_head,
    "linear": linear,
    "mlp": mlp,
    "resnet18_small": resnet18_small,
    "resnet_small": resnet_small,
    "torchvision": torchvision_model,
}

_WEIGHTS = (("architecture", "resnet18"), ("weights", ""))
_OURS = ("shape", "classes", "head")
_MAY_BE_NONE = ("depth", "layers")  # without a hidden layer the network is linear


def check_model(model: Model) -> None:
    """Raise ``UserError`` unless the model exists, takes the options given, and has its weights on this machine.

    A model's function takes ``shape``, ``classes`` and ``head``, then its options.
    """
    function = look_up("model", model.name, MODELS)
    _check_takes(model.name, function)
    if taken := [name for name in _OURS if name in model.options]:
        raise UserError(
            f"options of model {model.name} must not hold {taken[0]!r}: shape and classes come from the regime, the "
            "head from the loss, Loss(..., head=...)"
        )
    check_arguments("model", model.name, function, dict.fromkeys(_OURS) | dict(model.options))
    if model.name in MODELS:
        _check_counts(model)
    if model.name == "torchvision":
        find_weights(*(str(model.options.get(name, default)) for name, default in _WEIGHTS))


def _check_counts(model: Model) -> None:
    """Raise ``UserError`` unless each count among the options of one of our models is a whole number in range."""
    parameters = signature_of("model", model.name, MODELS[model.name]).parameters
    for name, value in model.options.items():
        if type(parameters[name].default) is not int:
            continue
        least = 0 if name in _MAY_BE_NONE else 1
        if type(value) is not int or value < least:
            raise UserError(
                f"option {name} of model {model.name} must be a whole number of at least {least}, got {value!r}"
            )


def _check_takes(name: str, function: Callable[..., nn.Module]) -> None:
    """Raise ``UserError`` unless a model's function takes the shape, the classes and the head."""
    if name.startswith("torchvision.models:"):
        _, _, architecture = name.partition(":")
        raise UserError(
            f"model {name} cannot be used by this name: take Model('torchvision', {{'architecture': "
            f"{architecture!r}}}), which gives it a head for the classes"
        )
    takes = {} if isinstance(function, nn.Module) else signature_of("model", name, function).parameters
    if all(given in takes for given in _OURS) or any(
        taken.kind is taken.VAR_KEYWORD for taken in takes.values()
    ):
        return
    got = f"a {type(function).__name__}" if isinstance(function, nn.Module) else f"one of {list(takes)}"
    raise UserError(
        f"model {name} must be a function of shape, classes, head and its options that returns a torch.nn.Module, "
        f"got {got}: wrap it, def net(shape, classes, head): return ..."
    )


def architecture_of(model: Model) -> Model:
    """Return the same model without the pretrained weights from which its training started.

    The pretrained weights are not needed to load a trained network, and may no longer be on this machine.
    """
    if model.name != "torchvision":
        return model
    options = {name: value for name, value in model.options.items() if name != "weights"}
    return replace(model, options=options)


def build_model(model: Model, shape: tuple[int, ...], classes: int, head: str) -> nn.Module:
    """Return a new network. Its weights are drawn from torch's global generator, as in torch's layers.

    Args:
        model: The model.
        shape: The shape of one input.
        classes: Number of outputs L.
        head: ``"linear"`` or ``"cosine"``.
    """
    return look_up("model", model.name, MODELS)(shape=shape, classes=classes, head=head, **model.options)
