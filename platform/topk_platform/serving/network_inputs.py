"""A network's inputs from files, images and arrays, read in the same way as its training data."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from torch import Tensor

from topk_platform.data.folders import ENDINGS, folders_below, is_image
from topk_platform.data.images.decoding import (
    MODES,
    UnreadableImageError,
    covering,
    crop,
    scaled_image,
    why_unreadable,
)
from topk_platform.data.images.in_files import scaled
from topk_platform.errors import UserError, reason
from topk_platform.specs import Inputs
from topk_platform.specs.checks import check

__all__ = ["Given", "listed", "read_inputs"]

Given = str | Path | Image.Image | npt.NDArray[Any] | Tensor
"""The types from which an input is read: the path of a file, a Pillow image, an array or a tensor."""

_NUMBERS = ".npy"
# Undocumented errors that Pillow's readers raise for manipulated files.
_BROKEN = (TypeError, LookupError, ArithmeticError, EOFError, MemoryError, struct.error, zlib.error)


def listed(given: Given | Sequence[Given], inputs: Inputs) -> list[Given]:
    """Return a list of single inputs: the files of a folder, the samples of a batch, the items of a sequence.

    Args:
        given: One input or several. A folder stands for all images in it and in its subfolders, in the order of their
            paths; for a network that takes numbers, for all ``.npy`` files. Hidden files and folders are left out, and
            links that lead round in a circle. An array or a tensor with more dimensions than one input is a batch.
        inputs: The network's inputs.

    Raises:
        UserError: if a folder holds no such file, or ``given`` has another type.
    """
    if isinstance(given, Image.Image):
        return [given]
    if isinstance(given, str | Path):
        # "" would be the present folder.
        check(given != "", "an input must be the path of a file or of a folder, got ''")
        path = Path(given).expanduser()
        return _files(path, inputs) if path.is_dir() else [path]
    if isinstance(given, np.ndarray | Tensor):
        return list(given) if given.ndim > len(inputs.shape) else [given]
    if isinstance(given, Sequence):
        return [each for part in given for each in listed(part, inputs)]
    raise UserError(
        f"an input must be a path, a Pillow image, an array or a tensor, or several of them, got {type(given).__name__}"
    )


def _files(folder: Path, inputs: Inputs) -> list[Given]:
    of_images = inputs.kind == "image"
    files = sorted(
        inner / name
        for inner, names in folders_below(folder)
        for name in names
        if name[0] != "." and (is_image(name) if of_images else name.endswith(_NUMBERS))
    )
    if not files:
        endings = ", ".join(ENDINGS) if of_images else _NUMBERS
        raise UserError(f"folder {folder} must hold files for the network ({endings}), got none")
    return list(files)


def read_inputs(given: Sequence[Given], inputs: Inputs, unreadable: dict[str, str] | None = None) -> Tensor:
    """Return inputs as the network takes them, ``(n, *shape)``: uint8 images, or float32 numbers.

    An image is converted to grey or colour like the training data, scaled to cover the network's input, and cropped to
    its middle. A uint8 array ``(height, width)`` or ``(height, width, channels)`` is treated in the same way. An array
    of the network's own shape ``(channels, height, width)`` is taken unchanged. Numbers are arrays, or ``.npy`` files
    with one input each.

    Args:
        given: The inputs, as :func:`listed` returns them.
        inputs: The network's inputs.
        unreadable: If given, an input that cannot be read is left out, and the reason is put here, by its path.

    Raises:
        UserError: if a file cannot be read, or the network does not take such an input, unless ``unreadable`` is given.
    """
    read = _image if inputs.kind == "image" else _numbers
    rows = []
    for item in given:
        try:
            rows.append(read(item, inputs))
        except UserError as error:
            if unreadable is None:
                raise
            unreadable[str(item)] = str(error)
    dtype = torch.uint8 if inputs.kind == "image" else torch.float32
    return torch.stack(rows) if rows else torch.empty((0, *inputs.shape), dtype=dtype)


def _numbers(given: Given, inputs: Inputs) -> Tensor:
    if isinstance(given, Image.Image) or (isinstance(given, str | Path) and Path(given).suffix != _NUMBERS):
        what = (
            f"an image of {given.width} × {given.height} pixels" if isinstance(given, Image.Image) else given
        )
        raise UserError(
            f"this network takes numbers of shape {inputs.shape}, not images: give them as arrays or as {_NUMBERS} "
            f"files, got {what}"
        )
    name, numbers = (
        (str(given), _loaded(Path(given))) if isinstance(given, str | Path) else ("an array", _array(given))
    )
    if numbers.shape != inputs.shape or numbers.dtype.kind not in "fiu":
        raise UserError(
            f"{name} must hold numbers of shape {inputs.shape}, got {numbers.dtype} of shape {numbers.shape}"
        )
    return torch.from_numpy(numbers.astype(np.float32))


def _array(given: npt.NDArray[Any] | Tensor) -> npt.NDArray[Any]:
    if not isinstance(given, Tensor):
        return given
    numbers = given.detach().cpu()
    return (numbers.float() if numbers.dtype == torch.bfloat16 else numbers).numpy()  # NumPy lacks bfloat16


def _loaded(path: Path) -> npt.NDArray[Any]:
    try:
        # It is mapped, because its header may claim terabytes.
        numbers = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, *_BROKEN) as error:
        raise UserError(f"{path} cannot be read as .npy: {reason(error)}") from error
    if not isinstance(numbers, np.ndarray):
        raise UserError(f"{path} cannot be read as .npy: it is an archive of several arrays")
    return numbers


def _image(given: Given, inputs: Inputs) -> Tensor:
    if isinstance(given, np.ndarray | Tensor):
        pixels = _array(given)
        if pixels.dtype == np.uint8 and pixels.shape == inputs.shape:
            return torch.from_numpy(pixels.copy())
        given = _picture(pixels, inputs)
    channels = inputs.shape[0]
    check(channels in MODES, f"an image has 1, 3 or 4 channels, the network takes {channels}")
    name = "from Pillow" if isinstance(given, Image.Image) else str(given)
    with _reading(name):
        if not inputs.resize:
            with nullcontext(given) if isinstance(given, Image.Image) else Image.open(given) as image:
                shown = covering(image, *inputs.shape)
        elif isinstance(given, Image.Image):  # with resize, the training data were image files
            shown = crop(scaled_image(_opened_again(given), inputs.resize), inputs.shape[1])
        else:
            shown = crop(scaled(Path(given), inputs.resize), inputs.shape[1])
    return torch.from_numpy(np.array(shown)).permute(2, 0, 1)


def _picture(pixels: npt.NDArray[Any], inputs: Inputs) -> Image.Image:
    """Return an array as a Pillow image; raise ``UserError`` unless it is uint8 and has the shape of an image."""
    flat = pixels.ndim == 2
    if pixels.dtype != np.uint8 or not (flat or (pixels.ndim == 3 and pixels.shape[2] in MODES)):
        hint = ": take (255 * x).round() of values x in [0, 1], as uint8" if pixels.dtype.kind == "f" else ""
        raise UserError(
            f"an image must be uint8 of shape (height, width), (height, width, channels), or {inputs.shape} as the "
            f"network takes it, got {pixels.dtype} of shape {pixels.shape}{hint}"
        )
    return Image.fromarray(pixels if flat or pixels.shape[2] > 1 else pixels[..., 0])


def _opened_again(picture: Image.Image) -> Image.Image:
    """Return a JPEG whose pixels are not read yet, opened once more; any other image as it is.

    A file's JPEG may be decoded at a fraction of its size. This would change the given image, which is the caller's.
    """
    if not isinstance(picture, JpegImageFile) or not picture.tile or picture.fp is None or picture.tell():
        return picture
    position = picture.fp.tell()
    picture.fp.seek(0)
    content = picture.fp.read()
    picture.fp.seek(position)
    again = Image.open(io.BytesIO(content))
    return again if again.size == picture.size else picture  # the caller may have called draft


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn an image reader's errors in the block into one line that names the image."""
    try:
        yield
    except UnreadableImageError:  # it names the file
        raise
    except _BROKEN as error:
        raise UserError(f"image {name} cannot be read: {type(error).__name__}: {error}") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"image {name} cannot be read: {why_unreadable(name, error)}") from error
