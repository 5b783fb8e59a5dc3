"""The frozen backbone of a head that was trained on features: exported with the head, and put in front of it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from topk_platform.data.dataset_table import DATASETS, feature_arguments, read
from topk_platform.data.images.backbones import Backbone, load_backbone, weights_hash
from topk_platform.data.images.in_files import Images
from topk_platform.errors import MissingDataError, UserError
from topk_platform.references import is_reference, look_up
from topk_platform.serving.package import BACKBONE, Config, Frozen
from topk_platform.specs import Inputs, Regime
from topk_platform.trust import made_by

__all__ = ["OnFeatures", "differing_tensor", "read_frozen", "read_tensors", "with_backbone"]

_CIFAR = {"cifar100": 32}  # the sides of images of datasets without an option for the size


class OnFeatures(nn.Module):
    """A head with the backbone that made its features: from uint8 images to scores ``(n, L)``."""

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores; features are rounded to float16, as stored features are."""
        scores: Tensor = self.head(self.backbone(images).half().float())
        return scores


def with_backbone(config: Config, options: Mapping[str, Any], expected: str = "") -> tuple[Config, bytes]:
    """Return the configuration of a head with its backbone, and the backbone's safetensors file.

    Args:
        config: The head's configuration.
        options: The options of its regime's dataset, ``image_features``.
        expected: The hash of the weights that computed the head's features; empty if it is not known.

    Raises:
        MissingDataError: if the backbone's package or weights are not on this machine; or the dataset of the images, if
            its options do not name their size.
        UserError: if there is no such backbone, or its weights are not those that computed the features.
    """
    taken = feature_arguments(options)
    backbone = load_backbone(taken["backbone"], taken["pixels"], taken["weights"])
    if expected and (got := weights_hash(backbone)) != expected:
        raise UserError(
            f"the weights of backbone {taken['backbone']} have changed since the head was trained on its features: "
            f"their hash must be {expected}, got {got}. Get the earlier weights, or run the study again, which "
            "computes the features again"
        )
    content = save({name: tensor.contiguous() for name, tensor in backbone.state_dict().items()})
    frozen = Frozen(
        name=taken["backbone"],
        pixels=taken["pixels"],
        shape=config.inputs.shape,
        sha256=hashlib.sha256(content).hexdigest(),
    )
    return replace(config, inputs=_photos(config.inputs, taken, backbone), backbone=frozen), content


def _photos(features: Inputs, taken: Mapping[str, Any], backbone: Backbone) -> Inputs:
    """Return the inputs of the backbone: images of the size that the dataset's images have."""
    shape, resize = _named_size(taken) or _size_of_data(taken)
    return replace(
        features,
        shape=shape,
        kind="image",
        mean=tuple(backbone.mean.flatten().tolist()),
        std=tuple(backbone.deviation.flatten().tolist()),
        resize=resize,
    )


def _named_size(taken: Mapping[str, Any]) -> tuple[tuple[int, ...], int] | None:
    """Return the shape of a dataset's images and their ``resize``, as its options name them; None if they do not."""
    if is_reference(taken["of"]):  # its options may mean anything
        return None
    known = inspect.signature(look_up("dataset", taken["of"], DATASETS)).parameters
    defaults = {name: known[name].default for name in ("size", "resize") if name in known}
    options = defaults | taken["options"]
    side = options.get("size") or _CIFAR.get(taken["of"])
    return ((3, side, side), options.get("resize", 0)) if side else None


def _size_of_data(taken: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    """Return the same, read from the images: they have the size that their files or arrays have."""
    try:
        source = read(Regime("features", taken["of"], options=taken["options"]))
    except MissingDataError as error:
        raise MissingDataError(
            f"{error}; the export needs these data, because no option names the size of their images"
        ) from error
    images = source.example.train.inputs
    return tuple(images.shape[1:]), images.resize if isinstance(images, Images) else 0


def read_frozen(folder: Path, frozen: Frozen) -> Backbone:
    """Return the backbone in the folder of an export.

    Raises:
        MissingDataError: if the package that builds it is not on this machine.
        UserError: if its file is damaged, or belongs to another backbone.
    """
    file = folder / BACKBONE
    tensors = read_tensors(file, frozen.sha256)
    if not is_reference(frozen.name):
        with torch.device("meta"):  # takes no memory
            built = load_backbone(frozen.name, frozen.pixels, weights=None).state_dict()
        if why := differing_tensor(built, tensors, file):
            raise UserError(f"backbone {frozen.name} builds another network than was exported: {why}")
    backbone = load_backbone(frozen.name, frozen.pixels, weights=None)
    with made_by(file, f"the tensors of backbone {frozen.name}"):
        backbone.load_state_dict(tensors)
    return backbone


def read_tensors(file: Path, sha256: str) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file, by name.

    Args:
        file: The file.
        sha256: Its SHA-256.

    Raises:
        UserError: if it cannot be read, or has another SHA-256.
    """
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if sha256 != digest:
            raise UserError(f"{file} is damaged or was changed: its SHA-256 differs from that of the export")
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    return tensors


def differing_tensor(built: Mapping[str, Tensor], read: Mapping[str, Tensor], file: Path | str) -> str:
    """Return a text about the first tensor that differs in type or shape from that in a file; empty if none does.

    Args:
        built: The tensors of the built network, by name.
        read: Those in the file.
        file: The file.
    """
    for name in sorted(built.keys() | read.keys()):
        ours, theirs = _in_words(built, name), _in_words(read, name)
        if ours != theirs:
            return f"tensor {name!r} is {ours} and {theirs} in {file}"
    return ""


def _in_words(tensors: Mapping[str, Tensor], name: str) -> str:
    return f"{tensors[name].dtype} of shape {tuple(tensors[name].shape)}" if name in tensors else "missing"
