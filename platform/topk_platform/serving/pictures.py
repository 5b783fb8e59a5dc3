"""Reading files as a network's inputs, in the same way as its training data."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from topk_platform.data.images.appearance import appearance
from topk_platform.data.images.decoding import check_pixels, crop, scaled
from topk_platform.errors import UserError, reason
from topk_platform.specs import Inputs

__all__ = ["read_inputs"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's modes by the number of channels
# Undocumented errors that Pillow's readers raise for manipulated files.
_BROKEN = (TypeError, LookupError, ArithmeticError, EOFError, MemoryError, struct.error, zlib.error)


def read_inputs(paths: Sequence[str | Path], inputs: Inputs) -> Tensor:
    """Return the inputs in files, ``(n, *shape)``: uint8 images, or float32 numbers.

    An image is converted to grey or colour like the training data, scaled to cover the network's input, and cropped to
    its middle. Numbers are ``.npy`` files with one input each.

    Args:
        paths: The files.
        inputs: The network's inputs.

    Raises:
        UserError: if a file cannot be read, or contains something else.
    """
    read = _image if inputs.kind == "image" else _numbers
    return torch.stack([read(Path(path), inputs) for path in paths])


def _numbers(path: Path, inputs: Inputs) -> Tensor:
    if path.suffix != ".npy":
        raise UserError(
            f"this network takes numbers of shape {inputs.shape}, not images: give them as .npy files, got {path}"
        )
    try:
        numbers = np.load(
            path, mmap_mode="r", allow_pickle=False
        )  # mapped, because its header may claim terabytes
    except (OSError, ValueError, EOFError, *_BROKEN) as error:
        raise UserError(f"{path} cannot be read as .npy: {reason(error)}") from error
    if not isinstance(numbers, np.ndarray):
        raise UserError(f"{path} cannot be read as .npy: it is an archive of several arrays")
    if numbers.shape != inputs.shape or numbers.dtype.kind not in "fiu":
        raise UserError(
            f"{path} must hold numbers of shape {inputs.shape}, got {numbers.dtype} of shape {numbers.shape}"
        )
    return torch.from_numpy(numbers.astype(np.float32))


def _image(path: Path, inputs: Inputs) -> Tensor:
    as_trained = inputs.resize > 0  # the data were images in files
    with _read(path):
        pixels = (
            crop(scaled(path, inputs.resize), inputs.shape[1])
            if as_trained
            else _covering(path, *inputs.shape)
        )
    return torch.from_numpy(np.array(pixels)).permute(2, 0, 1)


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Turn an image reader's errors in the block into one line that names the image."""
    try:
        yield
    except _BROKEN as error:
        raise UserError(f"image {path} cannot be read: {type(error).__name__}: {error}") from error


def _covering(path: Path, channels: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return an image scaled to cover ``(height, width, channels)`` and cropped to its middle."""
    if channels not in _MODES:
        raise UserError(
            f"an image file has {', '.join(map(str, _MODES))} channels, the network takes {channels}"
        )
    try:
        with Image.open(path) as image:
            picture = appearance(image, _MODES[channels])
            picture.load()  # while the file is open: Pillow reads a JPEG as late as it can
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"image {path} cannot be read: {error}") from error
    if width * picture.height <= height * picture.width:
        size = max(height * picture.width // picture.height, width), height
    else:
        size = width, max(width * picture.height // picture.width, height)
    check_pixels(path, size)
    pixels = np.asarray(picture.resize(size, Image.Resampling.BILINEAR)).reshape(size[1], size[0], channels)
    top, left = round((size[1] - height) / 2), round((size[0] - width) / 2)
    return pixels[top : top + height, left : left + width]
