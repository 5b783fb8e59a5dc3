"""Conversions of a user's arrays into arrays that the platform takes: as code for the study file, and as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from topk_platform.errors import UserError

__all__ = ["STEPS", "Array", "converted", "steps_of"]

Array = npt.NDArray[Any]

_CHANNELS = (1, 3, 4)
_SMALL = 4  # a larger dimension is an image's height or width, not its number of channels

# The conversions of an array, in the code of NumPy and of torch.
STEPS = {
    "channels first": (".transpose(0, 3, 1, 2)", ".permute(0, 3, 1, 2)"),
    "one channel": ("[:, None]", "[:, None]"),
    "bytes": (".astype(np.uint8)", ".to(torch.uint8)"),
    "black and white": (".astype(np.uint8) * 255", ".to(torch.uint8) * 255"),
    "real": (".astype(np.float32)", ".float()"),
    "whole": (".astype(np.int64)", ".long()"),
    "column": ("[:, 0]", "[:, 0]"),
}


def steps_of(name: Any, inputs: Array) -> tuple[str, ...]:
    """Return the steps that convert inputs to what the platform takes: uint8 images, channels first, or real numbers.

    Args:
        name: The name of the inputs in their file.
        inputs: The inputs.

    Raises:
        UserError: if the inputs are not numbers, or there are none.
    """
    kind, images = inputs.dtype.kind, inputs.ndim in (3, 4)
    if kind not in "biuf" or not inputs.size:
        raise UserError(
            f"--from: inputs {name!r} must be numbers, got {inputs.dtype} of shape {inputs.shape}"
        )
    of_bytes = images and (kind == "b" or (kind in "iu" and inputs.min() >= 0 and inputs.max() <= 255))
    steps = []
    if inputs.ndim == 4 and inputs.shape[3] in _CHANNELS and min(inputs.shape[1:3]) > _SMALL:
        steps.append("channels first")
    if of_bytes and inputs.ndim == 3:
        steps.append("one channel")
    if of_bytes and kind == "b":
        steps.append("black and white")
    elif of_bytes and inputs.dtype != np.uint8:
        steps.append("bytes")
    elif kind in "biu" and not of_bytes:
        steps.append("real")
    return tuple(steps)


def converted(array: Array, steps: Sequence[str]) -> Array:
    """Return an array after these steps, converted as by the code in the study file.

    Args:
        array: The array.
        steps: The names of the steps, in order.
    """
    done = {
        "channels first": lambda a: a.transpose(0, 3, 1, 2),
        "one channel": lambda a: a[:, None],
        "bytes": lambda a: a.astype(np.uint8),
        "black and white": lambda a: a.astype(np.uint8) * np.uint8(255),
        "real": lambda a: a.astype(np.float32),
        "whole": lambda a: a.astype(np.int64),
        "column": lambda a: a[:, 0],
    }
    for step in steps:
        array = done[step](array)
    return array
