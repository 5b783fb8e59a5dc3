"""The data of a study that ``topk new`` writes for arrays: an ``.npz`` file, or tensors in a ``.pt`` file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from topk_platform.cli.new.data_code import DataCode, has_tail, in_code
from topk_platform.data import Dataset, check_source, from_tensors
from topk_platform.errors import UserError, reason
from topk_platform.specs import Regime
from topk_platform.specs.checks import first_few

__all__ = ["array_code"]

Array = npt.NDArray[Any]

_PART = re.compile(r"(?:^[xy]?|[^a-z])(?:(train(?:ing)?)|(val(?:id(?:ation)?)?|dev)|(test))(?=[^a-z]|$)")
_PARTS = ("", "train", "validation", "test")  # by the group of the pattern, in a name such as x_train
_CHANNELS = (1, 3, 4)
_SMALL = 4  # a larger dimension is an image's height or width, not its number of channels
_LARGE = 20  # data with a standard deviation of 1 have no such numbers

_TABLES = (".csv", ".npy", ".tsv", ".txt")
_SAVE = ": write your arrays into one file, numpy.savez('data.npz', x=inputs, y=labels)"
_NUMBER = (
    ": numpy.unique(y, return_inverse=True)[1] makes labels of texts or reals, y.argmax(1) of one-hot rows"
)


@dataclass(frozen=True)
class _Step:
    """A conversion of an array.

    Args:
        code: What the study's file has behind the array.
        apply: The same as a function.
    """

    code: str
    apply: Callable[[Array], Array]


_CHANNELS_FIRST = _Step(".transpose(0, 3, 1, 2)", lambda array: array.transpose(0, 3, 1, 2))
_ONE_CHANNEL = _Step("[:, None]", lambda array: array[:, None])
_BYTES = _Step(".astype(np.uint8)", lambda array: array.astype(np.uint8))
_WHITE = _Step(" * 255", lambda array: array * 255)
_REALS = _Step(".astype(np.float32)", lambda array: array.astype(np.float32))
_LABELS = _Step(".reshape(-1).astype(np.int64)", lambda array: array.reshape(-1).astype(np.int64))

_LOAD = {
    ".npz": "np.load(data_folder() / {file})",
    ".pt": "torch.load(data_folder() / {file}, weights_only=True)",
}
_FUNCTION = """

def data() -> Dataset:
    arrays = {load}
    return {dataset}

"""


def array_code(file: Path, groups: str, drop_copies: bool) -> DataCode:
    """Return the code of a study's arrays.

    Names assign arrays to splits: ``x_train``, ``y_train``, ``x_val``, ``y_val``, ``x_test``, ``y_test`` and similar
    names. The code converts arrays that the platform does not take unchanged, such as images with channels last. The
    same is done here, so that the file is written only for data that a study takes.

    Args:
        file: An ``.npz`` or ``.pt`` file.
        groups: The name of the array of groups; if empty, the array ``groups`` is taken if there is one.
        drop_copies: Whether images that a later split has are left out of training.

    Raises:
        UserError: if the file does not exist, cannot be read, or holds other arrays than inputs and labels; also as
            :func:`~topk_platform.data.from_tensors` raises.
    """
    if file.suffix not in _LOAD or not file.is_file():
        missing = "" if file.exists() else ", which does not exist"
        remedy = _SAVE if file.suffix in _TABLES and not missing else ""
        raise UserError(
            f"--from must be a folder of images or a file {' or '.join(_LOAD)}, got {str(file)!r}{missing}{remedy}"
        )
    arrays = _read(file)
    parts = _parts(file, arrays, groups)
    inputs = {names[0]: arrays[names[0]] for names in parts.values()}
    converted = _converted(arrays, parts)
    dataset, code = _made(converted, drop_copies), _code(converted, drop_copies)
    images = dataset.train.inputs.dtype == torch.uint8
    counts = np.bincount(arrays[parts["train"][1]].reshape(-1).astype(int))
    text = _FUNCTION.format(load=_LOAD[file.suffix].format(file=in_code(file.name)), dataset=code)
    return DataCode(
        title=f"on the arrays of {file.name}",
        folder=file.parent,
        classes=dataset.classes,
        network="convnet" if images else "mlp",
        dataset="{name}:data",
        function=text,
        imports=tuple(
            line for line in ("import numpy as np", "import torch") if f"{line.split()[-1]}." in text
        ),
        tail=has_tail(counts[counts > 0].tolist()),
        tested=len(dataset.test),
        summary=f"{dataset.classes} classes, "
        + ", ".join(f"{len(split):,} samples for {name}" for name, split in dataset.splits.items()),
        notes=(
            *dataset.notes,
            *(note for name, array in inputs.items() for note in _notes(name, array, images)),
        ),
    )


def _read(file: Path) -> Mapping[Any, Array]:
    try:
        if file.suffix == ".npz":
            with np.load(file) as arrays:
                return dict(arrays)
        content = torch.load(file, weights_only=True)
        named = content if isinstance(content, dict) else dict(enumerate(content))
        tensors = {name: value.detach() for name, value in named.items() if isinstance(value, torch.Tensor)}
        return {n: np.asarray(t.float() if t.dtype == torch.bfloat16 else t) for n, t in tensors.items()}
    except Exception as error:  # NumPy and torch document no error types
        raise UserError(f"--from {str(file)!r} cannot be read: {reason(error)}") from error


def _parts(file: Path, arrays: Mapping[Any, Array], groups: str) -> dict[str, tuple[Any, ...]]:
    """Return the names of each split's inputs, labels and, if there are any, groups.

    Arrays without a split in their name are for training if no other array is.
    """
    named: dict[str, list[Any]] = {part: [] for part in ("train", "validation", "test", "")}
    for name in arrays:
        named[_part_of(name)].append(name)
    named["train"] = named["train"] or named[""]
    if not named["train"]:
        raise UserError(f"--from must hold arrays for training, got {_shapes(arrays)} in {file}")
    of_groups = [name for name in arrays if _base(name) == (groups or "groups")]
    parts = {part: _roles(file, arrays, names, of_groups) for part, names in named.items() if part and names}
    if groups and not all(len(names) > len(("inputs", "labels")) for names in parts.values()):
        raise UserError(
            f"--groups must name an array of each split in {file}, which has {sorted(map(str, arrays))}, got "
            f"{groups!r}"
        )
    return parts


def _part_of(name: Any) -> str:
    match = _PART.search(str(name).lower())
    return _PARTS[match.lastindex or 0] if match else ""


def _base(name: Any) -> str:
    """Return an array's name without the name of its split.

    >>> _base("groups_train"), _base("who")
    ('groups', 'who')
    """
    return _PART.sub("", str(name).lower()).strip("_-. ") if _part_of(name) else str(name)


def _roles(
    file: Path, arrays: Mapping[Any, Array], names: list[Any], of_groups: list[Any]
) -> tuple[Any, ...]:
    """Return the names of the only labels, of the only inputs of their length, and of the groups."""
    groups = [name for name in names if name in of_groups]
    held = {name: arrays[name] for name in names if name not in of_groups}
    labels = [
        name for name, a in held.items() if a.ndim and a.dtype.kind in "biu" and a.shape[1:] in ((), (1,))
    ]
    inputs = [name for name, a in held.items() if a.ndim > 1 and name not in labels]
    inputs = [name for name in inputs if labels and len(held[name]) == len(held[labels[0]])]
    if len(labels) != 1 or len(inputs) != 1:
        raise UserError(
            "--from must hold one array of inputs (n, ...) and one of whole-number labels (n,) for each split, got "
            f"{_shapes(held)} in {file}{'' if labels or not held else _NUMBER}"
        )
    return (*inputs, *labels, *groups[:1])


def _shapes(arrays: Mapping[Any, Array]) -> str:
    """Return arrays in words, for errors."""
    return ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items()) or "nothing"


def _conversion(splits: Sequence[Array]) -> tuple[_Step, ...]:
    """Return the steps that convert inputs to what the platform takes: uint8 images, channels first, or real numbers.

    Args:
        splits: The inputs of all splits, training first.
    """
    inputs = splits[0]
    kind, images = inputs.dtype.kind, inputs.ndim in (3, 4)
    last = inputs.ndim == 4 and inputs.shape[3] in _CHANNELS and min(inputs.shape[1:3]) > _SMALL
    bytes_ = all(array.min(initial=0) >= 0 and array.max(initial=0) <= 255 for array in splits)
    steps = [_CHANNELS_FIRST] * last
    if images and kind in "biu" and bytes_:
        steps += [_ONE_CHANNEL] * (inputs.ndim == 3)
        steps += [_BYTES] * (inputs.dtype != np.uint8) + [_WHITE] * (kind == "b")
    elif kind in "biu":
        steps += [_REALS]
    return tuple(steps)


@dataclass(frozen=True)
class _Converted:
    """An array as it is handed to ``from_tensors``.

    Args:
        array: The array.
        code: What the study's file has for it.
    """

    array: Array
    code: str

    @classmethod
    def of(cls, arrays: Mapping[Any, Array], name: Any, *steps: _Step) -> _Converted:
        code = f"arrays[{in_code(name)}]"
        if steps:
            code = f"np.asarray({code}){''.join(step.code for step in steps)}"
        return cls(reduce(lambda array, step: step.apply(array), steps, arrays[name]), code)


def _converted(
    arrays: Mapping[Any, Array], parts: Mapping[str, tuple[Any, ...]]
) -> dict[str, list[_Converted]]:
    """Return the inputs, labels and groups of each split."""
    steps = _conversion([arrays[names[0]] for names in parts.values()])
    result = {}
    for part, (inputs, labels, *groups) in parts.items():
        plain = arrays[labels].ndim == 1 and arrays[labels].dtype.kind != "b"
        named = ((inputs, *steps), (labels, *([] if plain else [_LABELS])), *((name,) for name in groups))
        result[part] = [_Converted.of(arrays, *each) for each in named]
    return result


def _code(parts: Mapping[str, Sequence[_Converted]], drop_copies: bool) -> str:
    arguments = [
        f"        {'' if part == 'train' else f'{part}='}({', '.join(array.code for array in arrays)}),\n"
        for part, arrays in parts.items()
    ]
    arguments += ['        copies="drop",\n'] if drop_copies else []
    return f"from_tensors(\n{''.join(arguments)}    )"


def _made(parts: Mapping[str, Sequence[_Converted]], drop_copies: bool) -> Dataset:
    """Return the dataset that the study's code will make of the arrays."""
    splits: dict[str, Any] = {part: tuple(each.array for each in held) for part, held in parts.items()}
    try:
        made = from_tensors(**splits, copies="drop" if drop_copies else "refuse")
        check_source(Regime("arrays", "arrays"), made)
    except UserError as error:
        raise UserError(f"--from: {error}") from error
    return made


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
