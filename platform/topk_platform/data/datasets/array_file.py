"""Arrays of your own in one file: which of them belong to which split, and how they become inputs and labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from topk_platform.data.dataset import Dataset
from topk_platform.data.datasets.tensors import from_tensors
from topk_platform.data.folders import data_folder
from topk_platform.errors import MissingDataError, UserError, reason
from topk_platform.specs.checks import check, first_few

__all__ = ["array_file"]

Array = npt.NDArray[Any]

_SPLIT = re.compile(r"(?:^[xy]?|[^a-z])(?:(train(?:ing)?)|(val(?:id(?:ation)?)?|dev)|(test))(?=[^a-z]|$)")
_SPLITS = ("", "train", "validation", "test")  # by the group of the pattern, in a name such as x_train
_CHANNELS = (1, 3, 4)
_SMALL = 4  # a larger dimension is an image's height or width, not its number of channels
_LARGE = 20  # data with a standard deviation of 1 have no such numbers
_NUMBER = (
    ": numpy.unique(y, return_inverse=True)[1] makes labels of texts or reals, y.argmax(1) of one-hot rows"
)


def array_file(file: str, groups: str = "", copies: str = "refuse") -> Dataset:
    """Return the arrays of an ``.npz`` file, or the tensors of a ``.pt`` file, as a dataset.

    Names assign arrays to splits: ``x_train``, ``y_train``, ``x_val``, ``y_val``, ``x_test``, ``y_test`` and similar
    names. Arrays without a split in their name are for training if no other array is. A split without arrays is taken
    from training. Whole numbers from 0 to 255 of three or four dimensions are images, also with their channels last.

    Args:
        file: The path of the file in the data folder.
        groups: The name of the array of groups; if empty, the array ``groups`` is taken if there is one.
        copies: Equal images in two of the splits, see :func:`topk_platform.data.image_folder`.

    Raises:
        MissingDataError: if there is no such file.
        UserError: if it cannot be read or holds other arrays than inputs and labels; also as
            :func:`~topk_platform.data.from_tensors` raises.
    """
    arrays = _read(data_folder(file))
    named = _names(arrays, groups)
    inputs = dict(zip(named, _inputs([arrays[names[0]] for names in named.values()]), strict=True))
    splits: dict[str, Any] = {
        split: (inputs[split], arrays[labels].reshape(-1).astype(np.int64), *(arrays[name] for name in more))
        for split, (_, labels, *more) in named.items()
    }
    made = from_tensors(**splits, copies=copies)
    images = made.train.inputs.dtype == torch.uint8
    notes = (note for names in named.values() for note in _notes(names[0], arrays[names[0]], images))
    return replace(made, notes=(*made.notes, *dict.fromkeys(notes)))


def _read(file: Path) -> Mapping[Any, Array]:
    if not file.is_file():
        raise MissingDataError(
            f"there is no file {file}: put it there, or name the folder of datasets with --data DIR or TOPK_DATA"
        )
    try:
        if file.suffix == ".npz":
            with np.load(file) as arrays:
                return dict(arrays)
        content = torch.load(file, weights_only=True)
        named = content if isinstance(content, dict) else dict(enumerate(content))
        tensors = {name: value.detach() for name, value in named.items() if isinstance(value, torch.Tensor)}
        return {n: np.asarray(t.float() if t.dtype == torch.bfloat16 else t) for n, t in tensors.items()}
    except Exception as error:  # NumPy and torch document no error types
        raise UserError(f"{file} cannot be read: {reason(error)}") from error


def _names(arrays: Mapping[Any, Array], groups: str) -> dict[str, tuple[Any, ...]]:
    """Return the names of each split's inputs, labels and, if there are any, groups."""
    named: dict[str, list[Any]] = {split: [] for split in ("train", "validation", "test", "")}
    for name in arrays:
        named[_split_of(name)].append(name)
    rest = named.pop("")
    named["train"] = named["train"] or rest
    check(bool(named["train"]), f"the file must hold arrays for training, got {_shapes(arrays)}")
    of_groups = {name for name in arrays if _base(name) == (groups or "groups")}
    result = {split: _roles(arrays, names, of_groups) for split, names in named.items() if names}
    check(
        not groups or all(len(names) > len(("inputs", "labels")) for names in result.values()),
        f"groups must name an array of each split, of {sorted(map(str, arrays))}, got {groups!r}",
    )
    return result


def _split_of(name: Any) -> str:
    match = _SPLIT.search(str(name).lower())
    return _SPLITS[match.lastindex or 0] if match else ""


def _base(name: Any) -> str:
    """Return an array's name without the name of its split.

    >>> _base("groups_train"), _base("who")
    ('groups', 'who')
    """
    return _SPLIT.sub("", str(name).lower()).strip("_-. ") if _split_of(name) else str(name)


def _roles(arrays: Mapping[Any, Array], names: Sequence[Any], of_groups: set[Any]) -> tuple[Any, ...]:
    """Return the names of the only labels, of the only inputs of their length, and of the groups."""
    held = {name: arrays[name] for name in names if name not in of_groups}
    labels = [
        name for name, a in held.items() if a.ndim and a.dtype.kind in "biu" and a.shape[1:] in ((), (1,))
    ]
    inputs = [name for name, a in held.items() if a.ndim > 1 and name not in labels]
    inputs = [name for name in inputs if labels and len(held[name]) == len(held[labels[0]])]
    check(
        len(labels) == len(inputs) == 1,
        "the file must hold one array of inputs (n, ...) and one of whole-number labels (n,) for each split, got "
        f"{_shapes(held)}{'' if labels or not held else _NUMBER}",
    )
    return (*inputs, *labels, *[name for name in names if name in of_groups][:1])


def _shapes(arrays: Mapping[Any, Array]) -> str:
    """Return arrays in words, for errors."""
    return ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items()) or "nothing"


def _inputs(splits: Sequence[Array]) -> Sequence[Array]:
    """Return the inputs of all splits, training first, as uint8 images with channels first, or as real numbers."""
    kind, dimensions, sizes = splits[0].dtype.kind, splits[0].ndim, splits[0].shape[1:]
    if dimensions == 4 and sizes[2] in _CHANNELS and min(sizes[:2]) > _SMALL:
        splits = [array.transpose(0, 3, 1, 2) for array in splits]
    if kind not in "biu":
        return splits
    bytes_ = all(array.min(initial=0) >= 0 and array.max(initial=0) <= 255 for array in splits)
    if dimensions not in (3, 4) or not bytes_:
        return [array.astype(np.float32) for array in splits]
    white = np.uint8(255 if kind == "b" else 1)  # masks are black and white
    images = [array.astype(np.uint8) * white for array in splits]
    return [array[:, None] for array in images] if dimensions == 3 else images


def _notes(name: Any, inputs: Array, images: bool) -> list[str]:
    """Return notes on images that are black, or whose numbers are far from 0 and are not normalised."""
    if inputs.ndim < 3:
        return []
    black = np.flatnonzero(~inputs.reshape(len(inputs), -1).any(1)).tolist()
    rows = f"inputs in {name!r} are zero everywhere: rows (from 0) {first_few([str(row) for row in black])}"
    notes = [f"{len(black)} of {len(inputs)} {rows}"] if black else []
    low, high = float(inputs.min()), float(inputs.max())
    if not images and max(-low, high) > _LARGE:
        remedy = "save them as uint8, which are normalised, or scale them to about -1 to 1"
        notes.append(
            f"inputs {name!r} are numbers from {low:g} to {high:g} and reach the network as they are: {remedy}"
        )
    return notes
