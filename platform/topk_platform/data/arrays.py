"""Conversion of users' inputs and labels to the tensors of a split."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from topk_platform.errors import UserError
from topk_platform.specs.checks import check

__all__ = ["check_finite", "check_inputs", "class_numbers", "to_inputs", "to_labels"]

_CHANNELS = (1, 3, 4)  # grey, colour, and colour with transparency
_NUMBERS_AT_ONCE = 2**20
_SMALL = 4  # a larger dimension is a height or a width, not a number of channels


def to_inputs(what: str, values: Any) -> Tensor:
    """Return inputs as a tensor; floating-point numbers become float32.

    Args:
        what: The name of the inputs in error messages.
        values: A tensor, a NumPy array, a pandas table or lists of numbers, ``(n, ...)``.

    Raises:
        UserError: if they cannot be converted to a tensor.
    """
    inputs = _tensor(what, values).detach()
    return inputs.float() if inputs.is_floating_point() else inputs


def to_labels(what: str, values: Any) -> Tensor:
    """Return labels as int64 ``(n,)``.

    Args:
        what: The name of the labels in error messages.
        values: A tensor, a NumPy array, a pandas column or a list of whole numbers.

    Raises:
        UserError: if they are not one whole number per sample.
    """
    return class_numbers(what, _tensor(what, values))


def class_numbers(what: str, labels: Tensor) -> Tensor:
    """Return labels as int64; raise ``UserError`` unless they are one whole number per sample."""
    whole = not (labels.is_floating_point() or labels.is_complex())
    hint = "" if whole else ": take labels.long() if they are whole"
    if labels.ndim == 2:
        hint = ": take labels[:, 0]" if labels.shape[1] == 1 else ": for one-hot rows take labels.argmax(1)"
    check(
        whole and labels.ndim == 1,
        f"{what} must be whole numbers of shape (n,), got {_kind(labels)}{hint}",
    )
    return labels.long()


def check_inputs(inputs: Tensor) -> None:
    """Raise ``UserError`` if networks cannot take the inputs, or would confuse an image's height with its channels."""
    kind, sizes = _kind(inputs), inputs.shape[1:]
    check(
        inputs.ndim > 1,
        f"inputs must be of shape (n, ...), got {kind}: for one number per sample take inputs[:, None]",
    )
    real = inputs.is_floating_point() or inputs.is_complex()
    check(
        inputs.dtype == torch.float32 or not real,
        f"inputs must be float32 or whole numbers, got {kind}: take inputs.float()",
    )
    check(not inputs.requires_grad, f"inputs must need no gradient, got {kind}: take inputs.detach()")
    pixels = inputs.dtype == torch.uint8
    check(
        not pixels or inputs.ndim == 4,
        f"uint8 inputs must be images (n, channels, height, width), got {kind}: for grey images take inputs[:, None], "
        "for other numbers inputs.float()",
    )
    innermost = len(sizes) == 3 and sizes[2] in (_CHANNELS if pixels else (3,)) and min(sizes[:2]) > _SMALL
    check(
        not innermost,
        f"images must be (n, channels, height, width), got {kind}: take inputs.permute(0, 3, 1, 2)",
    )


def check_finite(what: str, inputs: Tensor, where: str) -> None:
    """Raise ``UserError`` if an input has NaN or infinity; the error has the number of the first such row.

    Args:
        what: The name of the inputs in error messages.
        inputs: ``(n, ...)``.
        where: What the rows are of, for the message.
    """
    if not inputs.is_floating_point():
        return
    size = max(_NUMBERS_AT_ONCE // max(inputs[:1].numel(), 1), 1)
    for number, part in enumerate(torch.split(inputs, size)):
        # The smallest and largest values are finite only if all are, and take a tenth of the time to check.
        if part.numel() and not torch.stack(part.aminmax()).isfinite().all():
            row = number * size + int(part.isfinite().flatten(1).all(1).logical_not().nonzero()[0])
            raise UserError(
                f"{what} must be finite, got NaN or infinity in sample {row} (from 0) {where}: leave such samples out, "
                "or take torch.nan_to_num(inputs)"
            )


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _tensor(what: str, values: Any) -> Tensor:
    try:  # torch would order a pandas series by its index, which may differ from the order of its rows
        return torch.as_tensor(np.array(values) if hasattr(values, "to_numpy") else values)
    except (TypeError, ValueError, RuntimeError, LookupError) as error:
        raise UserError(
            f"{what} must be a tensor, a NumPy array or lists of numbers, got {_described(values)}: "
            f"{_remedy(values) or ' '.join(str(error).split())}"
        ) from error


def _described(values: Any) -> str:
    if isinstance(values, np.ndarray):
        return f"an array of {values.dtype}"
    of = f" of {type(values[0]).__name__}" if isinstance(values, (list, tuple)) and values else ""
    return f"a {type(values).__name__}{of}"


def _remedy(values: Any) -> str:
    item = values[0] if isinstance(values, (list, tuple)) and values else values
    if isinstance(item, str) or (isinstance(item, np.ndarray) and item.dtype.kind in "US"):
        return "for classes' names take np.unique(labels, return_inverse=True)[1]"
    if isinstance(item, Tensor):
        return "for tensors of one shape take torch.stack(inputs)"
    if type(item).__module__.startswith("PIL."):
        return (
            "for images of one size take torch.stack([torchvision.transforms.v2.functional.pil_to_tensor(image) "
            "for image in inputs]), or name the folder that they are in: dataset 'image_folder'"
        )
    return ""
