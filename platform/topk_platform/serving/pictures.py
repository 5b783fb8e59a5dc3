"""Reading files into a network's inputs, in the way its training data were read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from topk_platform.data.appearance import appearance
from topk_platform.data.decoding import check_pixels, crop, scaled
from topk_platform.errors import UserError, reason
from topk_platform.specs import Inputs

__all__ = ["read_inputs"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # of Pillow, by the number of channels
# What Pillow's readers raise, besides what they are meant to, for files that somebody has changed.
_BROKEN = (TypeError, LookupError, ArithmeticError, EOFError, MemoryError, struct.error, zlib.error)


def read_inputs(paths: Sequence[str | Path], inputs: Inputs) -> Tensor:
    """Return the inputs that files hold, ``(n, *shape)``: uint8 images, or float32 numbers.

    An image is made grey or coloured as the data were, scaled so that it covers what the network sees, and cut to its
    middle. Numbers are ``.npy`` files, each of one input.

    Args:
        paths: The files.
        inputs: What the network takes.

    Raises:
        UserError: if a file cannot be read, or holds something else.
    """
    read = _image if inputs.kind == "image" else _numbers
    return torch.stack([read(Path(path), inputs) for path in paths])


def _numbers(path: Path, inputs: Inputs) -> Tensor:
    if path.suffix != ".npy":
        raise UserError(
            f"this network takes numbers of shape {inputs.shape}, not images: give them as .npy files, got {path}"
        )
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)  # it may claim to hold terabytes
    except (OSError, ValueError, EOFError, *_BROKEN) as error:
        raise UserError(f"{path} cannot be read as .npy: {reason(error)}") from error
    if not isinstance(found, np.ndarray):
        raise UserError(f"{path} cannot be read as .npy: it is an archive of several arrays")
    if found.shape != inputs.shape or found.dtype.kind not in "fiu":
        raise UserError(
            f"{path} must hold numbers of shape {inputs.shape}, got {found.dtype} of shape {found.shape}"
        )
    return torch.from_numpy(found.astype(np.float32))


def _image(path: Path, inputs: Inputs) -> Tensor:
    own = inputs.resize > 0  # the very way of images in files
    with _read(path):
        pixels = crop(scaled(path, inputs.resize), inputs.shape[1]) if own else _covering(path, *inputs.shape)
    return torch.from_numpy(np.array(pixels)).permute(2, 0, 1)


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Turn what an image's reader raises within the block into one line that names the image."""
    try:
        yield
    except _BROKEN as error:
        raise UserError(f"image {path} cannot be read: {type(error).__name__}: {error}") from error


def _covering(path: Path, channels: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return the middle ``(height, width, channels)`` of an image scaled to cover just that."""
    from PIL import Image  # noqa: PLC0415 - comes with torchvision

    if channels not in _MODES:
        raise UserError(
            f"an image file has {', '.join(map(str, _MODES))} channels, the network takes {channels}"
        )
    try:
        with Image.open(path) as image:
            found = appearance(image, _MODES[channels])
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"image {path} cannot be read: {error}") from error
    if width * found.height <= height * found.width:
        size = max(height * found.width // found.height, width), height
    else:
        size = width, max(width * found.height // found.width, height)
    check_pixels(path, size)
    pixels = np.asarray(found.resize(size, Image.Resampling.BILINEAR)).reshape(size[1], size[0], channels)
    top, left = round((size[1] - height) / 2), round((size[0] - width) / 2)
    return pixels[top : top + height, left : left + width]
