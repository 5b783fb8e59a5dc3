"""Lists of a user's own image files: a folder for each class, or one table that names the class of each file."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from unicodedata import normalize

import torch

from topk_platform.data.folders import (
    ENDINGS,
    folders_below,
    images_below,
    is_folder,
    is_left_out,
    not_read,
    rows_of_table,
)
from topk_platform.data.grouping import groups_of_files
from topk_platform.data.images.decoding import pool
from topk_platform.data.images.listing import (
    SPLITS,
    FileList,
    Sample,
    cached,
    class_names,
    file_list,
    size_of,
)
from topk_platform.errors import MissingDataError
from topk_platform.specs.checks import check, first_few

__all__ = [
    "HELD_OUT",
    "folder_list",
    "from_folders",
    "own_files",
    "plain_name",
    "split_folders",
    "table_list",
]

HELD_OUT = {"validation": ("validation", "val", "valid", "dev"), "test": ("test", "testing")}
"""The names of the splits that are not for training, as folders, files and tables have them."""
_SPLIT_OF = {"train": "train", "training": "train"} | {n: s for s, names in HELD_OUT.items() for n in names}
_FOLDERS = ("train", "validation", "val", "valid", "test")
# The names of columns, in lower case; of several the first in this order counts.
_COLUMNS = {
    "file": (
        "file",
        "filename",
        "file_name",
        "filepath",
        "path",
        "image_path",
        "image",
        "img",
        "image_id",
        "name",
        "id",
    ),
    "label": ("label", "class", "class_name", "category", "species", "target", "dx", "y"),
    "split": ("split", "set", "subset", "partition"),
    "group": ("group", "patient", "patient_id", "lesion_id", "photographer"),
}


def plain_name(name: str) -> str:
    """Return a class's name in one form: macOS writes é as two letters, other systems as one.

    Example:
        >>> plain_name("cafe\u0301") == "caf\u00e9"
        True
    """
    return normalize("NFC", name)


def own_files(
    dataset: str, root: Path, labels: str, groups: str, keep: bool
) -> tuple[FileList, Mapping[str, str]]:
    """Return the images of a user's folder, and the group of each by its path; no groups if they are not known.

    Args:
        dataset: The dataset's name, for errors.
        root: The folder.
        labels: The path of the table of labels relative to ``root``; empty where folders are the classes.
        groups: The source of the groups, see :func:`~topk_platform.data.grouping.groups_of_files`; if empty, the
            table of labels may have them.
        keep: Whether the list of a folder is kept in :func:`cache_folder`.

    Raises:
        MissingDataError: if there is no such folder, table or image.
        UserError: as for :func:`split_folders`, :func:`folder_list` and :func:`table_list`.
    """
    if not root.is_dir():
        raise MissingDataError(
            f"dataset {dataset}: there is no folder {root}. Put the images there as {root.name}/CLASS/IMAGE or "
            f"{root.name}/train/CLASS/IMAGE, or name the folder that holds {root.name} with --data DIR or TOPK_DATA"
        )
    splits = {"train": "."} if labels else split_folders(root)
    if labels:
        files, named = table_list(root, labels)
    else:
        files, named = (from_folders if keep else folder_list)(root, splits), {}
    if groups:
        paths = files.paths(torch.arange(len(files)))
        inside = paths if splits["train"] == "." else [path.partition("/")[2] for path in paths]
        named = groups_of_files(paths, inside, root, groups)
    return files, named


def split_folders(root: Path) -> dict[str, str]:
    """Return the folder of each split that has one, in ``root``; without a folder ``train``, ``root`` itself, ``"."``.

    Raises:
        UserError: if a folder beside ``train`` is not named after a split, a split has two folders, or a split has a
            folder and ``train`` has none.
    """
    folders = _folders_in(root)
    if "train" not in folders:
        stray = [name for name in folders if name.lower() in _FOLDERS]
        check(not stray, f"{root} holds {stray}, which have names of splits, but no folder 'train'")
        return {"train": "."}
    stray = [name for name in folders if name not in _FOLDERS]
    check(
        not stray,
        f"{root} holds {stray} beside 'train', which would not be read: a split's folder is called one of "
        f"{list(_FOLDERS)}; rename it or move it away",
    )
    splits: dict[str, str] = {}
    for name in folders:
        other = splits.setdefault(_SPLIT_OF[name], name)
        check(other == name, f"{_SPLIT_OF[name]} must be one folder, got {other!r} and {name!r} in {root}")
    return {split: splits[split] for split in SPLITS if split in splits}


def _folders_in(folder: Path) -> list[str]:
    return sorted(e.name for e in os.scandir(folder) if is_folder(e) and not is_left_out(e.name))


def from_folders(root: Path, splits: Mapping[str, str]) -> FileList:
    """Return what :func:`folder_list` returns; it is kept in :func:`cache_folder` until a folder has changed.

    A changed image of the same name is not noticed; in that case delete the list.
    """
    return cached(f"folders {sorted(splits.items())}", root, "", partial(folder_list, root, splits))


def folder_list(root: Path, splits: Mapping[str, str]) -> FileList:
    """Return the images of ``root / folder / class / image``, also those in folders of a class's folder.

    Classes are numbered in the order of their names in training. A folder without images is no class.

    Args:
        root: The dataset's folder.
        splits: The folder of each split in ``root``, training first; ``"."`` for ``root`` itself.

    Raises:
        UserError: if a split has no images, or a class that training lacks.
    """
    samples: list[Sample] = []
    inner = [_dated(root, root), *(_dated(root, root / folder) for folder in splits.values())]
    numbers: dict[str, int] = {}
    empty: list[str] = []
    for split, folder in splits.items():
        top = root / folder
        names = _folders_in(top)
        held = list(pool().map(partial(_images, root), [top / name for name in names]))
        named = {name: images for name, (images, _) in zip(names, held, strict=True) if images}
        inner += [dated for _, folders in held for dated in folders]
        if split == "train":
            numbers = {name: label for label, name in enumerate(dict.fromkeys(map(plain_name, named)))}
            empty = [name for name in names if plain_name(name) not in numbers]
        unknown = [name for name in named if plain_name(name) not in numbers]
        check(not unknown, f"{top} must have no class that training lacks, got {first_few(unknown)}")
        lacking = f"none in {first_few(names)}" if names else "no folder"
        check(
            bool(named),
            f"{top} must hold folders of images, one per class ({', '.join(ENDINGS)}), got {lacking}",
        )
        part = SPLITS.index(split)
        samples += [
            (path, size, numbers[plain_name(name)], part) for name in named for path, size in named[name]
        ]
    return file_list(root, samples, list(numbers), _note(root, samples, empty), inner=tuple(inner))


def _images(root: Path, folder: Path) -> tuple[list[tuple[str, int]], list[tuple[bytes, int]]]:
    """Return the images in a folder and in its folders, in torchvision's order, and these folders with their dates."""
    # The dates are taken first: an image that comes in between then makes the list again.
    dated = [_dated(root, inner) for inner, _ in folders_below(folder)]
    return [(path[len(str(root)) + 1 :], size_of(path)) for path in images_below(folder)], dated


def _dated(root: Path, folder: Path) -> tuple[bytes, int]:
    return os.fsencode(os.path.relpath(folder, root)), folder.stat().st_mtime_ns


def _note(root: Path, samples: Sequence[Sample], empty: Sequence[str]) -> str:
    """Return a sentence about folders that are no classes and files that are not read; empty if there are none."""
    none = f"folders without images are no classes: {first_few(empty)}" if empty else ""
    unread = not_read(root, {f"{root}/{path}" for path, *_ in samples})
    return "; ".join(filter(None, (none, unread)))


def table_list(root: Path, table: str) -> tuple[FileList, Mapping[str, str]]:
    """Return the images that a table lists with their classes, and the group of each if it has a column of groups.

    The table is a text file with a line for each image. Its first line names the columns: one of files and one of
    labels, and perhaps one of splits and one of groups. Without such a line the columns come in this order. A file is
    named by its path in ``root``, by its name alone, or by its name without ending.

    Args:
        root: The dataset's folder.
        table: The table's path relative to ``root``.

    Raises:
        MissingDataError: if there is no such table, or an image does not exist.
        UserError: if the table cannot be read, has no such columns, has an image twice or without a label, or names a
            split that is none.
    """
    file = Path(os.path.normpath(root / table))
    columns = _columns(rows_of_table(file, "labels"), file)
    paths = _paths(root, file, columns["file"])
    twice = [path for path, count in Counter(paths).items() if count > 1]
    check(not twice, f"labels: {file} must name each image once, got several lines of {first_few(twice)}")
    labels = list(map(plain_name, columns["label"]))
    unlabelled = [path for path, label in zip(paths, labels, strict=True) if not label]
    check(
        not unlabelled,
        f"labels: {file} must have a label for each image, got none of {first_few(unlabelled)}",
    )
    splits = [_SPLIT_OF.get(name.lower(), name) for name in columns.get("split", ["train"] * len(paths))]
    odd = sorted(set(splits) - set(SPLITS))
    check(not odd, f"labels: a split in {file} must be one of {sorted(_SPLIT_OF)}, got {first_few(odd)}")
    check("train" in splits, f"labels: {file} must have images of the split train, got {sorted(set(splits))}")
    trained = {label for label, split in zip(labels, splits, strict=True) if split == "train"}
    unknown = sorted(set(labels) - trained)
    check(
        not unknown,
        f"labels: {file} must have training images of each class, got none of {first_few(unknown)}",
    )
    classes = class_names(trained)
    numbers = {name: label for label, name in enumerate(classes)}
    sizes = pool().map(size_of, [root / path for path in paths])
    samples: list[Sample] = [
        (path, size, numbers[label], SPLITS.index(split))
        for path, size, label, split in zip(paths, sizes, labels, splits, strict=True)
    ]
    groups = dict(zip(paths, columns.get("group", ()), strict=False))
    samples.sort(key=lambda sample: (sample[2], sample[0]))  # whatever the order of the lines
    return file_list(root, samples, classes, _note(root, samples, ())), groups


def _columns(rows: Sequence[Sequence[str]], file: Path) -> dict[str, list[str]]:
    """Return the columns of a table of labels by their meaning."""
    check(len(rows) > 1, f"labels: {file} must have a line for each image, got {len(rows)} lines")
    names = [cell.strip().lower() for cell in rows[0]]
    matching = {kind: [name for name in known if name in names] for kind, known in _COLUMNS.items()}
    if matching["file"]:
        check(
            bool(matching["label"]),
            f"labels: {file} must have a column of labels, called {first_few(_COLUMNS['label'])}, got {rows[0]}",
        )
        at, lines = {kind: names.index(of[0]) for kind, of in matching.items() if of}, rows[1:]
    else:
        at, lines = dict(zip(_COLUMNS, range(len(names)), strict=False)), rows
        check("label" in at, f"labels: {file} must have a file and its label in each line, got {rows[0]}")
    short = [",".join(line) for line in lines if len(line) <= max(at.values())]
    check(
        not short,
        f"labels: {file} must have {1 + max(at.values())} cells in each line, got {first_few(short)}",
    )
    return {kind: [line[number].strip() for line in lines] for kind, number in at.items()}


def _paths(root: Path, file: Path, names: Sequence[str]) -> list[str]:
    """Return the path of each image that a table names, relative to ``root``."""
    known: dict[str, set[str]] = defaultdict(set)
    for image in images_below(root):
        path = Path(image).relative_to(root)
        for key in (path.as_posix(), path.name, path.stem):
            known[key].add(path.as_posix())
    of = [known.get(name) or known.get(Path(name).name, set()) for name in names]
    missing = [name for name, paths in zip(names, of, strict=True) if not paths]
    if missing:
        raise MissingDataError(
            f"labels: {len(missing)} images of {file} are not in {root}: {first_few(missing)}"
        )
    several = [name for name, paths in zip(names, of, strict=True) if len(paths) > 1]
    check(
        not several,
        f"labels: {file} must name images by their paths in {root}, got several of {first_few(several)}",
    )
    return [path for paths in of for path in paths]
