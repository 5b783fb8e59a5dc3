"""Conversions of a user's arrays into arrays that the platform takes: as code for the study file, and as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topk_platform.errors import UserError

__all__ = ["STEPS", "Array", "converted", "steps_of"]

Array = npt.NDArray[Any]

_CHANNELS = (1, 3, 4)
_SMALL = 4  # a larger dimension is an image's height or width, not its number of channels


class _Step(NamedTuple):
    """A conversion of an array.

    Attributes:
        code: The code for the study file, of NumPy and of torch.
        apply: The same as a function.
    """

    code: tuple[str, str]
    apply: Callable[[Array], Array]


STEPS = {
    "channels first": _Step(
        (".transpose(0, 3, 1, 2)", ".permute(0, 3, 1, 2)"), lambda a: a.transpose(0, 3, 1, 2)
    ),
    "one channel": _Step(("[:, None]", "[:, None]"), lambda a: a[:, None]),
    "bytes": _Step((".astype(np.uint8)", ".to(torch.uint8)"), lambda a: a.astype(np.uint8)),
    "black and white": _Step(
        (".astype(np.uint8) * 255", ".to(torch.uint8) * 255"), lambda a: a.astype(np.uint8) * np.uint8(255)
    ),
    "real": _Step((".astype(np.float32)", ".float()"), lambda a: a.astype(np.float32)),
    "whole": _Step((".astype(np.int64)", ".long()"), lambda a: a.astype(np.int64)),
    "column": _Step(("[:, 0]", "[:, 0]"), lambda a: a[:, 0]),
}
"""The conversions, by name."""


def steps_of(splits: Mapping[Any, Array]) -> tuple[str, ...]:
    """Return the steps that convert inputs to what the platform takes: uint8 images, channels first, or real numbers.

    Args:
        splits: The inputs of all splits, by their names in their file, training first.

    Raises:
        UserError: if the inputs are not numbers, or a split has none.
    """
    for name, array in splits.items():
        if array.dtype.kind not in "biuf" or not array.size:
            raise UserError(
                f"--from: inputs {name!r} must be numbers, got {array.dtype} of shape {array.shape}"
            )
    inputs = next(iter(splits.values()))
    kind, images = inputs.dtype.kind, inputs.ndim in (3, 4)
    bytes_ = kind in "iu" and all(array.min() >= 0 and array.max() <= 255 for array in splits.values())
    of_bytes = images and (kind == "b" or bytes_)
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
    for step in steps:
        array = STEPS[step].apply(array)
    return array
