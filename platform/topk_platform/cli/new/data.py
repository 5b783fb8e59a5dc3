"""The data of a study that ``topk new`` writes: image folders, arrays, or what Hugging Face's ``datasets`` saved."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from topk_platform.cli.new.data_faults import check_finite, check_labels, few_images, has_tail, image_counts
from topk_platform.errors import UserError, reason

__all__ = ["DataCode", "data_code"]

_ARRAYS = (".npz", ".pt")
_SAVED = ("dataset_dict.json", "dataset_info.json")  # of several splits, of one
_GROUPS = "groups"
_HELD_OUT = {"validation": ("validation", "valid", "val"), "test": ("test",)}

_READ_NPZ = """

def data() -> Dataset:
    with np.load(data_folder() / {file}) as arrays:
        return from_tensors(({parts}))

"""
_READ_PT = """

def data() -> Dataset:
    arrays = torch.load(data_folder() / {file}, weights_only=True)
    return from_tensors(({parts}))

"""


_READ_SAVED = """

def data() -> Dataset:
    splits = load_from_disk(data_folder() / {file})
    return from_tensors({splits})


def arrays(rows: Rows) -> tuple[np.ndarray, list[int]]:
    images = [ImageOps.fit(image.convert("RGB"), ({size}, {size})) for image in rows[{inputs}]]
    return np.stack([np.asarray(image) for image in images]).transpose(0, 3, 1, 2), rows[{labels}][:]

"""


@dataclass(frozen=True)
class DataCode:
    """The parts of a study file that are about its data.

    Args:
        title: The data in words.
        folder: The folder of datasets that contains them.
        classes: How many classes there are.
        network: A network that fits the data.
        dataset: The regime's dataset; ``{name}`` stands for the study's name.
        options: Its options.
        function: The code of a function that reads the data, if they need one.
        imports: Its imports from other packages.
        names: Its imports from ``topk_platform``.
        augmentation: The code of the recipe's augmentation, if there is one.
        tail: Whether some classes have many times as many samples as others.
        note: A note about the data for the user; may be empty.
    """

    title: str
    folder: Path
    classes: int
    network: str
    dataset: str
    options: Mapping[str, str | int] = field(default_factory=dict)
    function: str = ""
    imports: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    augmentation: str = ""
    tail: bool = False
    note: str = ""

    def regime(self, name: str) -> str:
        """Return the code of the regime in the file of the study ``name``."""
        kind = "images" if self.network == "convnet" else "arrays"
        values = [f"{_code(key)}: {_code(value)}" for key, value in self.options.items()]
        options = f", options={{{', '.join(values)}}}" if values else ""
        return f'Regime("{kind}", {_code(self.dataset)}{options})'.replace("{name}", name)


def data_code(source: Path, size: int, groups: str = "") -> DataCode:
    """Return the code of a study's data.

    Args:
        source: A folder of images, an ``.npz`` or ``.pt`` file, or a folder that ``datasets`` saved to.
        size: The side of the images in pixels.
        groups: For a folder of images, how to find their groups, see :func:`topk_platform.data.image_folder`; for
            arrays, the name of the array of groups, by default ``groups``.

    Raises:
        UserError: if it is none of these, cannot be read, needs ``datasets`` and this is not installed, or there are
            no such groups.
    """
    if not source.is_dir():
        return _arrays(source, groups)
    if not any((source / name).is_file() for name in _SAVED):
        return _images(source, size, groups)
    if groups:
        raise UserError(f"--groups is for folders of images and for arrays; {source} was saved by datasets")
    return _saved(source, size)


def _saved(folder: Path, size: int) -> DataCode:
    if importlib.util.find_spec("datasets") is None:
        raise UserError(
            f"--from {str(folder)!r} was saved by datasets, which is not installed: pip install datasets"
        )
    import datasets  # noqa: PLC0415 - a second or two

    try:
        saved = datasets.load_from_disk(str(folder))
    except Exception as error:  # the library documents no error types
        raise UserError(f"--from {str(folder)!r} cannot be read: {reason(error)}") from error
    several = isinstance(saved, datasets.DatasetDict)
    if several and "train" not in saved:
        raise UserError(f"--from must hold a split 'train', got {sorted(saved)} in {folder}")
    image, label, classes = _columns(folder, (saved["train"] if several else saved).features)
    splits = _splits(saved if several else {})
    return DataCode(
        title=f"on the images of {folder.name}",
        folder=folder.parent,
        classes=classes,
        network="convnet",
        dataset="{name}:data",
        function=_READ_SAVED.format(
            file=_code(folder.name), splits=splits, size=size, inputs=_code(image), labels=_code(label)
        ),
        imports=(
            "import numpy as np",
            "from datasets import Dataset as Rows",
            "from datasets import load_from_disk",
            "from PIL import ImageOps",
        ),
        names=("Augmentation",),
        augmentation=f", augmentation=Augmentation(crop={size // 8}, flip=True)",
    )


def _columns(folder: Path, features: Mapping[str, Any]) -> tuple[str, str, int]:
    """Return the names of the columns of images and of labels, and the number of classes."""
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    labels = [name for name, feature in features.items() if type(feature).__name__ == "ClassLabel"]
    if len(images) != 1 or len(labels) != 1:
        kinds = ", ".join(f"{name} {type(feature).__name__}" for name, feature in features.items())
        raise UserError(
            f"--from must hold one column of images and one of class labels, got {kinds} in {folder}: "
            "remove_columns leaves others out"
        )
    return images[0], labels[0], int(features[labels[0]].num_classes)


def _splits(saved: Mapping[str, Any]) -> str:
    """Return the arguments of ``from_tensors``; missing splits are taken from the training split."""
    if not saved:
        return "arrays(splits)"
    names = {part: next((n for n in names if n in saved), "") for part, names in _HELD_OUT.items()}
    given = [f"{part}=arrays(splits[{_code(name)}])" for part, name in names.items() if name]
    return ", ".join(['arrays(splits["train"])', *given])


def _images(folder: Path, size: int, groups: str) -> DataCode:
    train = folder / "train" if (folder / "train").is_dir() else folder
    counts = image_counts(train)
    held_out = [names for names in _HELD_OUT.values() if any((folder / name).is_dir() for name in names)]
    least = 1 + len(_HELD_OUT) - (len(held_out) if train != folder else 0)
    grouped = {"groups": groups} if groups else {}
    return DataCode(
        title=f"on the images of {folder.name}",
        folder=folder.parent,
        classes=len(counts),
        network="convnet",
        dataset="image_folder",
        options={"folder": folder.name, "size": size, **grouped},
        names=("Augmentation",),
        augmentation=f", augmentation=Augmentation(crop={size // 8}, flip=True)",
        tail=has_tail(counts),
        note=few_images(counts, least),
    )


def _arrays(file: Path, groups: str) -> DataCode:
    if not file.exists():
        raise UserError(f"--from: there is no {str(file)!r}")
    if file.suffix not in _ARRAYS or not file.is_file():
        raise UserError(
            f"--from must be a folder of images or a file {' or '.join(_ARRAYS)}, got {str(file)!r}"
        )

    arrays = {name: np.asarray(array) for name, array in _reader(file.suffix)(file).items()}
    grouped = _grouped(file, arrays, groups)
    inputs, labels = _pair(file, {name: array for name, array in arrays.items() if name not in grouped})
    check_labels(labels, arrays[labels])
    check_finite(inputs, arrays[inputs])
    numbers, counts = np.unique(arrays[labels], return_counts=True)
    image = arrays[inputs].dtype == np.uint8 and arrays[inputs].ndim == 4
    read, library = (_READ_NPZ, "import numpy as np") if file.suffix == ".npz" else (_READ_PT, "import torch")
    return DataCode(
        title=f"on the arrays of {file.name}",
        folder=file.parent,
        classes=len(numbers),
        network="convnet" if image else "mlp",
        dataset="{name}:data",
        function=read.format(
            file=_code(file.name),
            parts=", ".join(f"arrays[{_code(name)}]" for name in (inputs, labels, *grouped)),
        ),
        imports=(library,),
        tail=has_tail(dict(enumerate(counts.tolist()))),
    )


def _grouped(file: Path, arrays: Mapping[Any, Any], groups: str) -> tuple[str, ...]:
    """Return the name of the array of groups, if there is one."""
    if groups and groups not in arrays:
        raise UserError(
            f"--groups must name an array of {file}, got {groups!r} beside {sorted(map(str, arrays))}"
        )
    name = groups or _GROUPS
    return (name,) if name in arrays else ()


def _reader(suffix: str) -> Callable[[Path], Mapping[Any, Any]]:
    return _npz if suffix == ".npz" else _pt


def _npz(file: Path) -> Mapping[Any, Any]:

    try:
        with np.load(file) as arrays:
            return dict(arrays)
    except Exception as error:  # NumPy documents no error types
        raise UserError(f"--from {str(file)!r} cannot be read: {reason(error)}") from error


def _pt(file: Path) -> Mapping[Any, Any]:
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
    return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}


def _pair(file: Path, arrays: Mapping[Any, Any]) -> tuple[Any, Any]:
    """Return the names of the inputs and the labels: the only array ``(n,)`` of integers, and one as long as it."""
    labels = [name for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "iu"]
    inputs = [name for name in arrays if labels and name not in labels and arrays[name].ndim >= 2]
    inputs = [name for name in inputs if len(arrays[name]) == len(arrays[labels[0]])]
    if len(labels) != 1 or len(inputs) != 1:
        shapes = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        raise UserError(
            f"--from must hold inputs (n, ...) and whole labels (n,), one of each, got {shapes or 'nothing'} in {file}"
        )
    return inputs[0], labels[0]


def _code(value: Any) -> str:
    """Return a text or a number as Python's code, in double quotes as the rest of the file."""
    return json.dumps(value)
