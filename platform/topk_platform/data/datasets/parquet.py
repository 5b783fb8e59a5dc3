"""Images in Parquet files, in the layout of Hugging Face's datasets."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.datasets.tensors import assembled, check_numbered
from topk_platform.data.folders import data_folder, is_left_out
from topk_platform.data.images.decoding import UnreadableImageError, pool, square
from topk_platform.data.images.own_files import HELD_OUT
from topk_platform.errors import MissingDataError, UserError, reason
from topk_platform.specs.checks import check, first_few

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ParquetImages", "parquet_images", "read_parquet_splits"]

_SPLITS = {"train": "train", **{name: split for split, names in HELD_OUT.items() for name in names}}
_ROWS = 2048  # rows of a file that are decoded at once
_HIDDEN = -1  # what Hugging Face's datasets have where a label is not public


def parquet_images(
    files: str,
    image: str = "",
    label: str = "",
    size: int = 0,
    validation: float = 0.1,
    test: float = 0.1,
    copies: str = "refuse",
) -> Dataset:
    """Return images from Parquet files, uint8 ``(n, 3, height, width)``, in memory.

    The name of a file, or of its folder, begins with its split: ``train``, ``validation`` (``valid``, ``val``) or
    ``test``. If a split has no file, it is a fixed fraction of each class's training images. A split whose labels are
    hidden, all -1, is left out, and a note of the data says so.

    Args:
        files: The path of a folder or of one file in the data folder. All ``*.parquet`` files of the folder and of its
            subfolders are read. An absolute path works too, but it is part of the arms' identity, which then differs on
            another machine.
        image: The column of the images: a struct of ``bytes`` and ``path``, or the bytes of an image file. By
            default the only column of one of these types.
        label: The column of the labels: whole numbers from 0 on, or strings. By default the only column that the
            file's metadata call a ``ClassLabel``, or else the column ``label``. If the metadata name the classes, the
            names count, and files may number them in different orders.
        size: Images are scaled so that their shorter side has this many pixels, and cropped to the square in the
            middle. With 0 they are kept as they are, and must all have the same size.
        validation: The fraction of each class for validation, if no file is for validation.
        test: The fraction of each class for test, if no file is for test.
        copies: ``"refuse"`` or ``"drop"``, see :func:`topk_platform.data.image_folder`.

    Raises:
        MissingDataError: if there is no such file or folder, or the folder has no Parquet file.
        UserError: if a column is missing or ambiguous, an image cannot be read or has no label, labels without names do
            not number the classes from 0 on, the images differ in size, or a split has classes that training lacks.
    """
    check(size >= 0, f"size must be at least 0 pixels, got {size!r}")
    parts = read_parquet_splits(data_folder(files), image, label, size)
    hidden = [split for split, part in parts.items() if set(part.labels) == {_HIDDEN}]
    parts = {split: part for split, part in parts.items() if split not in hidden}
    check("train" in parts, "the training images must have labels, got -1 for all")
    names = parts["train"].names
    for split, part in parts.items():
        missing = sorted(set(part.names or ()) - set(names or ()))
        check(not missing, f"the {split} images have classes that training lacks: {first_few(missing)}")
    splits = {split: Split(part.images, part.numbered(names)) for split, part in parts.items()}
    if names is None:
        check_numbered(torch.cat([split.labels for split in splits.values()]))
    fractions = {n: f for n, f in {"validation": validation, "test": test}.items() if n not in splits}
    data = assembled(splits, fractions, names=names, copies=copies)
    notes = (f"the labels of {split} are hidden, all -1: it is left out" for split in hidden)
    return replace(data, notes=(*data.notes, *notes))


@dataclass(frozen=True)
class ParquetImages:
    """Images of some Parquet files, with their labels.

    Args:
        images: uint8 ``(n, 3, height, width)``.
        labels: The label of each image: its class's number, or its name.
        names: The classes' names in the order of their numbers, or None if the files do not hold them.
    """

    images: Tensor
    labels: Sequence[int | str]
    names: tuple[str, ...] | None

    def numbered(self, names: Sequence[str] | None) -> Tensor:
        """Return the labels as class numbers, int64 ``(n,)``.

        Args:
            names: The names of all classes in the order of their numbers, or None if the labels are numbers.

        Raises:
            UserError: if a label is not among the names.
        """
        if all(isinstance(label, int) for label in self.labels):
            return torch.tensor(self.labels, dtype=torch.int64)
        number = {name: row for row, name in enumerate(names or ())}
        unknown = sorted({str(label) for label in self.labels} - set(number))
        check(
            not unknown,
            f"labels must be classes that the first file of training names, got {first_few(unknown)}",
        )
        return torch.tensor([number[str(label)] for label in self.labels], dtype=torch.int64)


def read_parquet_splits(
    root: Path, image: str = "", label: str = "", size: int = 0
) -> dict[str, ParquetImages]:
    """Return the images of each split of a folder, or of one file as ``train``; see :func:`parquet_images`."""
    result = {}
    for split, paths in _files(root).items():
        parts = [_read(path, image, label, size) for path in paths]
        shapes = {tuple(part.images.shape[1:]) for part in parts}
        check(len(shapes) == 1, f"images must be of one size, got {sorted(shapes)} in {root}: set size")
        labels, names = [each for part in parts for each in part.labels], parts[0].names
        if names is None and isinstance(labels[0], str):
            names = tuple(sorted(set(map(str, labels))))
        result[split] = ParquetImages(torch.cat([part.images for part in parts]), labels, names)
    return result


def _files(root: Path) -> dict[str, list[Path]]:
    """Return each split's files, sorted."""
    if root.is_file():
        return {"train": [root]}
    paths = sorted(p for p in root.rglob("*.parquet") if not any(map(is_left_out, p.relative_to(root).parts)))
    if not paths:
        raise MissingDataError(
            f"dataset parquet_images: {root} must be a Parquet file or a folder of some, got "
            f"{'an empty folder' if root.is_dir() else 'no such file or folder'}; name the folder that holds it with "
            "--data DIR or TOPK_DATA"
        )
    files: dict[str, list[Path]] = {}
    for path in paths:
        files.setdefault(_split_of(path, root), []).append(path)
    check("train" in files, f"{root} must hold files of the split train, got {sorted(files)}")
    return files


def _split_of(path: Path, root: Path) -> str:
    """Return the split with which the name of a file, or of one of its folders, begins."""
    for name in (path.name, *reversed(path.relative_to(root).parts[:-1])):
        for start in (name.partition("-")[0], name.partition(".")[0], name):
            if start.lower() in _SPLITS:
                return _SPLITS[start.lower()]
    raise UserError(
        f"{path} must belong to a split: its name, or its folder's, must begin with one of {sorted(_SPLITS)} and a "
        "hyphen or dot"
    )


def _read(path: Path, image: str, label: str, size: int) -> ParquetImages:
    from pyarrow import parquet  # noqa: PLC0415 - training without the platform does not need it

    try:
        file = parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {reason(error)}") from error
    schema = file.schema_arrow
    noted = (
        json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features") or {}
    )
    features: dict[str, dict[str, Any]] = {n: kind for n, kind in noted.items() if isinstance(kind, dict)}
    of_classes = [name for name, kind in features.items() if kind.get("_type") == "ClassLabel"]
    of_images = [field.name for field in schema if _holds_images(field.type)]
    image = image or _only(path, schema, of_images, "images", "image")
    label = label or _only(
        path, schema, of_classes or [n for n in schema.names if n == "label"], "labels", "label"
    )
    for column in (image, label):
        check(column in schema.names, f"{path} has no column {column!r}, only {schema.names}")
    images: list[Tensor] = []
    labels: list[int | str | None] = []
    for at, batch in enumerate(file.iter_batches(_ROWS, columns=[image, label])):
        images += _decode(batch.column(image), path, at * _ROWS, size)
        labels += batch.column(label).to_pylist()
    shapes = sorted({str(tuple(pixels.shape[1:])) for pixels in images})
    check(len(images) > 0, f"{path} must hold images, got none")
    check(len(shapes) == 1, f"images must be of one size, got {first_few(shapes)} in {path}: set size")
    names = features.get(label, {}).get("names")
    return ParquetImages(torch.stack(images), _named(labels, names, path), tuple(names) if names else None)


def _only(path: Path, schema: pyarrow.Schema, names: Sequence[str], what: str, option: str) -> str:
    """Return the only one of some columns."""
    check(
        len(names) == 1,
        f"{path} must have one column of {what}, got {list(names)} of {schema.names}: name it with {option}",
    )
    return names[0]


def _named(
    labels: Sequence[int | str | None], names: Sequence[str] | None, path: Path
) -> Sequence[int | str]:
    """Return the labels as names if the file names its numbers: other files may number the classes anew."""
    given = [label for label in labels if label is not None]
    empty = len(labels) - len(given)
    check(not empty, f"{path} must hold a label for each image, got none for {empty} of {len(labels)}")
    other = [str(label) for label in given if not isinstance(label, int | str)]
    check(not other, f"{path}: labels must be whole numbers or strings, got {first_few(other)}")
    if not names or set(given) == {_HIDDEN}:
        return given
    odd = [str(label) for label in given if isinstance(label, int) and not 0 <= label < len(names)]
    check(not odd, f"{path}: labels must lie in [0, {len(names)}), got {first_few(odd)}")
    return [names[label] if isinstance(label, int) else label for label in given]


def _holds_images(kind: pyarrow.DataType) -> bool:
    from pyarrow import types  # noqa: PLC0415 - as above

    if types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _decode(column: pyarrow.Array, path: Path, first: int, size: int) -> list[Tensor]:
    """Return the images of a column's part, each uint8 ``(3, height, width)``."""

    def decode(row: int, value: Any) -> Tensor | str:
        try:
            return _image(value, path.parent, size)
        except UnreadableImageError as error:
            return f"row {first + row}: {error}"

    images = list(pool().map(decode, range(len(column)), column.to_pylist()))
    broken = [each for each in images if isinstance(each, str)]
    check(not broken, f"{path}: {len(broken)} images cannot be read: {first_few(broken)}")
    return [each for each in images if isinstance(each, Tensor)]


def _image(value: Any, folder: Path, size: int) -> Tensor:
    """Return an image from bytes, or from a struct of ``bytes`` and ``path``."""
    if isinstance(value, dict):
        file = None if value.get("path") is None else folder / value["path"]
        try:
            value = file.read_bytes() if value["bytes"] is None and file is not None else value["bytes"]
        except OSError as error:
            raise UnreadableImageError(f"{file}: {error}") from error
    if value is None:
        raise UnreadableImageError("it is empty")
    return square(io.BytesIO(value), size)
