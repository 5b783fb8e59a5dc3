"""The data of a study that ``topk new`` writes: image folders, arrays, or a dataset that ``datasets`` saved."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topk_platform.cli.new.arrays import array_code
from topk_platform.cli.new.data_code import DataCode, in_code
from topk_platform.cli.new.data_faults import few_images, has_tail, image_counts, not_read
from topk_platform.errors import UserError, reason

__all__ = ["data_code"]

_SAVED = ("dataset_dict.json", "dataset_info.json")  # for several splits, for one split
_REMEDY = "Add images, move such folders away, or give folders val and test of your own"
_HELD_OUT = {"validation": ("validation", "valid", "val"), "test": ("test",)}

_READ_SAVED = """

def data() -> Dataset:
    splits = load_from_disk(data_folder() / {file})
    return from_tensors({splits})


def arrays(rows: Rows) -> tuple[np.ndarray, list[int]]:
    images = [ImageOps.fit(image.convert("RGB"), ({size}, {size})) for image in rows[{inputs}]]
    return np.stack([np.asarray(image) for image in images]).transpose(0, 3, 1, 2), rows[{labels}][:]

"""


def data_code(source: Path, size: int, groups: str = "") -> DataCode:
    """Return the code of a study's data.

    Args:
        source: A folder of images, an ``.npz`` or ``.pt`` file, or a folder to which Hugging Face's ``datasets`` saved
            a dataset.
        size: The side of the images in pixels.
        groups: For a folder of images, the pattern or file of their groups, see
            :func:`topk_platform.data.image_folder`; for arrays, the name of the array of groups, by default ``groups``.

    Raises:
        UserError: if the source is none of these, cannot be read, needs ``datasets`` but the package is not installed,
            or has no such groups.
    """
    if not source.is_dir():
        return array_code(source, groups)
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
            file=in_code(folder.name), splits=splits, size=size, inputs=in_code(image), labels=in_code(label)
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
            "remove the others with remove_columns"
        )
    return images[0], labels[0], int(features[labels[0]].num_classes)


def _splits(saved: Mapping[str, Any]) -> str:
    """Return the arguments of ``from_tensors``; missing splits are taken from the training split."""
    if not saved:
        return "arrays(splits)"
    names = {part: next((n for n in names if n in saved), "") for part, names in _HELD_OUT.items()}
    given = [f"{part}=arrays(splits[{in_code(name)}])" for part, name in names.items() if name]
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
        notes=tuple(filter(None, (few_images(counts, least, _REMEDY), not_read(folder)))),
    )
