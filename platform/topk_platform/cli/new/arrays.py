"""The data of a study that ``topk new`` writes for arrays: an ``.npz`` file, or tensors in a ``.pt`` file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topk_platform.cli.new.array_steps import STEPS, Array, converted, steps_of
from topk_platform.cli.new.data_code import DataCode, in_code
from topk_platform.cli.new.data_faults import (
    all_zero,
    check_finite,
    check_labels,
    few_images,
    has_tail,
    large_numbers,
)
from topk_platform.errors import UserError, reason

__all__ = ["array_code"]

_ENDINGS = (".npz", ".pt")
_GROUPS = "groups"
_PARTS = {
    "training": "train",
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
_PART = re.compile(rf"(?:^[xy]?|[^a-z])({'|'.join(_PARTS)})(?=[^a-z]|$)")  # in a name such as x_train
_REMEDY = "Add samples, leave such classes out, or add arrays x_val, y_val, x_test and y_test of your own"
_LONGEST = 100  # characters of a line

_READ = {
    ".npz": """

def data() -> Dataset:
    with np.load(data_folder() / {file}) as arrays:
        return {dataset}

""",
    ".pt": """

def data() -> Dataset:
    arrays = torch.load(data_folder() / {file}, weights_only=True)
    return {dataset}

""",
}


class _Part(NamedTuple):
    """The names of a split's arrays in the file; ``groups`` is None if the split has no groups."""

    inputs: Any
    labels: Any
    groups: Any = None

    @property
    def names(self) -> tuple[Any, ...]:
        return self.inputs, self.labels, *([] if self.groups is None else [self.groups])


def array_code(file: Path, groups: str) -> DataCode:
    """Return the code of a study's arrays.

    Names assign arrays to splits: ``x_train``, ``y_train``, ``x_val``, ``y_val``, ``x_test``, ``y_test`` and similar
    names. The code converts arrays that the platform does not take unchanged, such as images with channels last.

    Args:
        file: An ``.npz`` or ``.pt`` file.
        groups: The name of the array of groups; if empty, the array ``groups`` is taken if there is one.

    Raises:
        UserError: if it does not exist, cannot be read, or holds other arrays than inputs and labels.
    """
    if not file.exists():
        raise UserError(f"--from: there is no {str(file)!r}")
    if file.suffix not in _ENDINGS or not file.is_file():
        raise UserError(
            f"--from must be a folder of images or a file {' or '.join(_ENDINGS)}, got {str(file)!r}"
        )
    arrays = (_npz if file.suffix == ".npz" else _pt)(file)
    parts = _splits(file, arrays, groups)
    steps = steps_of({part.inputs: arrays[part.inputs] for part in parts.values()})
    changed = {name: _changes(arrays, part, steps) for name, part in parts.items()}
    labels = _check(arrays, parts, changed)
    classes = 1 + max(int(numbers.max()) for numbers in labels.values())
    counts = dict(enumerate(np.bincount(labels["train"], minlength=classes).tolist()))
    image = "one channel" in steps or (
        arrays[parts["train"].inputs].ndim == 4 and _is_of_bytes(arrays, parts, steps)
    )
    library = "import numpy as np" if file.suffix == ".npz" else "import torch"
    return DataCode(
        title=f"on the arrays of {file.name}",
        folder=file.parent,
        classes=classes,
        network="convnet" if image else "mlp",
        dataset="{name}:data",
        function=_READ[file.suffix].format(file=in_code(file.name), dataset=_dataset(file, parts, changed)),
        imports=(library,),
        tail=has_tail({label: count for label, count in counts.items() if count}),
        notes=_notes(arrays, parts, steps, counts),
    )


def _npz(file: Path) -> Mapping[Any, Array]:
    try:
        with np.load(file) as arrays:
            return dict(arrays)
    except Exception as error:  # NumPy documents no error types
        raise UserError(f"--from {str(file)!r} cannot be read: {reason(error)}") from error


def _pt(file: Path) -> Mapping[Any, Array]:
    import torch  # noqa: PLC0415 - a second or two

    try:
        content = torch.load(file, weights_only=True)
    except Exception as error:  # torch documents no error types
        raise UserError(f"--from {str(file)!r} cannot be read: {reason(error)}") from error
    named = dict(enumerate(content)) if isinstance(content, tuple | list) else content
    if not isinstance(named, dict):
        raise UserError(
            f"--from must hold a dictionary or a pair of tensors, got {type(content).__name__} in {file}"
        )
    tensors = {name: value.detach() for name, value in named.items() if isinstance(value, torch.Tensor)}
    try:
        return {
            name: np.asarray(t.float() if t.dtype == torch.bfloat16 else t) for name, t in tensors.items()
        }
    except (TypeError, RuntimeError) as error:  # sparse, or of a type that NumPy lacks
        raise UserError(f"--from {str(file)!r} cannot be read: {reason(error)}") from error


# The roles of the arrays


def _splits(file: Path, arrays: Mapping[Any, Array], groups: str) -> dict[str, _Part]:
    """Return the arrays of each split.

    Arrays without a split in their name are for training if no other array is.
    """
    named: dict[str, dict[Any, Array]] = {"train": {}, "validation": {}, "test": {}, "": {}}
    for name, array in arrays.items():
        named[_part_of(name)][name] = array
    if not named["train"]:
        named["train"] = named[""]
    elif groups in named[""]:
        raise UserError(f"--groups must name an array of each split, such as {groups}_train, got {groups!r}")
    known = [name for part in named.values() for name in part if _base(name) == (groups or _GROUPS)]
    if groups and not known:
        raise UserError(
            f"--groups must name an array of {file}, which has {sorted(map(str, arrays))}, got {groups!r}"
        )
    pairs = {}
    for part, held in named.items():
        if held and part:
            rest = {name: array for name, array in held.items() if name not in known}
            pairs[part] = _pair(file, rest, next((name for name in known if name in held), None), part)
    return pairs


def _part_of(name: Any) -> str:
    match = _PART.search(str(name).lower())
    return _PARTS[match[1]] if match else ""


def _base(name: Any) -> str:
    """Return an array's name without the name of its split.

    >>> _base("groups_train"), _base("who")
    ('groups', 'who')
    """
    return _PART.sub("", str(name).lower()).strip("_-. ") if _part_of(name) else str(name)


def _pair(file: Path, arrays: Mapping[Any, Array], groups: Any, part: str) -> _Part:
    """Return the names of a split's arrays: the only array of class numbers, and the only inputs of its length."""
    flat = [name for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "iu"]
    other = [
        name
        for name, array in arrays.items()
        if (array.ndim == 1 and array.dtype.kind == "b")
        or (array.shape[1:] == (1,) and array.dtype.kind in "iu")
    ]
    labels = flat or other
    inputs = [name for name in arrays if labels and name not in labels and arrays[name].ndim >= 2]
    inputs = [name for name in inputs if len(arrays[name]) == len(arrays[labels[0]])]
    if len(labels) != 1 or len(inputs) != 1:
        shapes = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        raise UserError(
            "--from must hold one array of inputs (n, ...) and one of whole-number labels (n,), got "
            f"{shapes or 'nothing'} for {part} in {file}{_hint(list(arrays.values()))}"
        )
    return _Part(inputs[0], labels[0], groups)


def _hint(arrays: Sequence[Array]) -> str:
    flat = [array for array in arrays if array.ndim == 1]
    if any(array.dtype.kind in "US" for array in flat):
        return ": save class names as numbers, np.unique(names, return_inverse=True)[1]"
    if any(array.dtype.kind == "f" and (array == array.round()).all() for array in flat):
        return ": save real labels as whole numbers, labels.astype(int)"
    return ""


# Conversions and checks


def _is_of_bytes(arrays: Mapping[Any, Array], parts: Mapping[str, _Part], steps: Sequence[str]) -> bool:
    return arrays[parts["train"].inputs].dtype == np.uint8 or bool({"bytes", "black and white"} & set(steps))


def _changes(arrays: Mapping[Any, Array], part: _Part, steps: Sequence[str]) -> tuple[Sequence[str], ...]:
    """Return the conversion steps of each array of a split."""
    labels = arrays[part.labels]
    of_labels = ["column"] if labels.ndim == 2 else ["whole"] if labels.dtype.kind == "b" else []
    return (steps, of_labels, *([] if part.groups is None else [[]]))


def _check(
    arrays: Mapping[Any, Array], parts: Mapping[str, _Part], changed: Mapping[str, tuple[Sequence[str], ...]]
) -> dict[str, npt.NDArray[np.integer[Any]]]:
    """Raise ``UserError`` unless the platform takes the arrays; return the labels of each split."""
    labels = {name: converted(arrays[part.labels], changed[name][1]) for name, part in parts.items()}
    check_labels(parts["train"].labels, np.concatenate(list(labels.values())))
    for part in parts.values():
        check_finite(part.inputs, arrays[part.inputs])
    kinds = {
        f"{part.inputs} {arrays[part.inputs].dtype} {arrays[part.inputs].shape[1:]}"
        for part in parts.values()
    }
    if len({kind.partition(" ")[2] for kind in kinds}) > 1:
        raise UserError(
            f"--from: inputs of all splits must be of one type and shape, got {', '.join(sorted(kinds))}"
        )
    from topk_platform.running.preflight.checks import check_arrays  # noqa: PLC0415 - torch, a second or two

    for name, part in parts.items():
        try:
            check_arrays(converted(arrays[part.inputs][:1], changed[name][0]), labels[name][:1] * 0)
        except UserError as error:
            raise UserError(f"--from: array {part.inputs!r}: {error}") from error
    return labels


# The text of the study file


def _dataset(file: Path, parts: Mapping[str, _Part], changed: Mapping[str, tuple[Sequence[str], ...]]) -> str:
    dialect = _ENDINGS.index(file.suffix)
    pairs = {}
    for name, part in parts.items():
        texts = [
            f"arrays[{in_code(array)}]{''.join(STEPS[step].code[dialect] for step in steps)}"
            for array, steps in zip(part.names, changed[name], strict=True)
        ]
        pairs[name] = f"({', '.join(texts)})"
    arguments = [pairs.pop("train"), *(f"{name}={pair}" for name, pair in pairs.items())]
    line = f"from_tensors({', '.join(arguments)})"
    if len(line) <= _LONGEST - 15:
        return line
    indent = "    " * (3 if file.suffix == ".npz" else 2)
    return f"from_tensors(\n{''.join(f'{indent}{argument},{chr(10)}' for argument in arguments)}{indent[4:]})"


def _notes(
    arrays: Mapping[Any, Array], parts: Mapping[str, _Part], steps: Sequence[str], counts: Mapping[int, int]
) -> tuple[str, ...]:
    least = 1 + 2 - (len(parts) - 1)
    several = [part.inputs for part in parts.values() if arrays[part.inputs].ndim >= 3]
    named = {str(label): count for label, count in counts.items() if count}
    lines = [
        few_images(named, least, _REMEDY, "samples"),
        *(all_zero(name, arrays[name]) for name in several),
        *(
            large_numbers(name, arrays[name])
            for name in several[:1]
            if not _is_of_bytes(arrays, parts, steps)
        ),
    ]
    return tuple(filter(None, lines))
