"""The folder of an exported network: its files and its configuration."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from topk_platform.errors import UserError
from topk_platform.records.networks import SavedModel
from topk_platform.specs import Inputs, Model
from topk_platform.specs.checks import check
from topk_platform.specs.codec import decode, encode
from topk_platform.specs.fields import Checked, Count, check_fields, one_of
from topk_platform.trust import check_size, made_by, most_bytes, parse_json

__all__ = ["BACKBONE", "CALIBRATION", "CARD", "CONFIG", "ONNX", "WEIGHTS", "Config", "Frozen"]

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
BACKBONE = "backbone.safetensors"
CARD = "README.md"
CALIBRATION = "calibration.json"
ONNX = "model.onnx"

_FORMAT = 2
_FOLDER = "a folder of `topk export --arm`"


@dataclass(frozen=True)
class Frozen(Checked):
    """The frozen backbone in front of an exported head.

    Args:
        name: The backbone's name, as :func:`~topk_platform.data.images.backbones.load_backbone` takes it.
        pixels: The side of the square to which images are scaled.
        shape: The shape of one image's features, which the head takes.
        sha256: The SHA-256 of the backbone's file.

    Raises:
        UserError: if a field has another type or is out of range.
    """

    name: str
    pixels: Count
    shape: tuple[Count, ...]
    sha256: str


@dataclass(frozen=True)
class Config:
    """The configuration of an exported network.

    Args:
        model: The function that builds the network, and its options.
        head: ``"linear"`` or ``"cosine"``.
        inputs: The network's inputs.
        k: The K of its arm, the number of candidates that it returns.
        arm: The arm's name.
        key: The key of the trial that trained it.
        sha256: The SHA-256 of the tensors' file.
        backbone: For a head that was trained on features, the backbone that computes them; ``inputs`` are then those of
            the backbone.

    Raises:
        UserError: if a field has another type or is out of range.
    """

    model: Model
    head: Annotated[str, one_of("linear", "cosine")]
    inputs: Inputs
    k: Count
    arm: str
    key: str
    sha256: str
    backbone: Frozen | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        classes = self.inputs.classes
        check(self.k <= classes, f"k must be at most the number of classes, {classes}, got {self.k}")

    @property
    def code(self) -> dict[str, str]:
        """The names of the model and of the backbone, if any; such a name may refer to code outside this package."""
        return {"model": self.model.name} | ({"backbone": self.backbone.name} if self.backbone else {})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the model takes: that of an input, or of an image's features."""
        return self.inputs.shape if self.backbone is None else self.backbone.shape

    @classmethod
    def of(cls, saved: SavedModel) -> Config:
        """Return the configuration of a network in a store."""
        arm = saved.trial.arm
        sha256 = hashlib.sha256(saved.content).hexdigest()
        return cls(arm.model, arm.loss.head, saved.inputs, arm.k, arm.name, saved.trial.key, sha256)

    def to_json(self) -> str:
        """Return the configuration as JSON that people can read."""
        return json.dumps({"format": _FORMAT, **encode(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Return the configuration that ``to_json`` wrote.

        Raises:
            ValueError, LookupError, TypeError: if the text is not such a configuration.
        """
        data: dict[str, Any] = parse_json(text)
        if (written := data.pop("format")) != _FORMAT:
            raise ValueError(f"format must be {_FORMAT}, got {written!r}")
        config: Config = decode(data, (cls, Frozen, Inputs, Model))
        return config

    @classmethod
    def read(cls, folder: Path) -> Config:
        """Return the configuration in a folder.

        Raises:
            UserError: if it is missing or damaged, or the network takes inputs of gigabytes.
        """
        try:
            content = (folder / CONFIG).read_bytes()
        except OSError as error:
            raise UserError(f"{folder} must be {_FOLDER}: its {CONFIG} cannot be read") from error
        with made_by(folder / CONFIG, f"the configuration in {_FOLDER}"):
            config = cls.from_json(content.decode())
            config.check_size()
        return config

    def check_size(self) -> None:
        """Raise ``ValueError`` if one input, or an image before it is cropped, takes gigabytes."""
        pixels = max(math.prod(self.inputs.shape), 3 * self.inputs.resize**2)
        check_size("an input", 4 * pixels, most_bytes())
