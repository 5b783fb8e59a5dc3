"""The data of a study that ``topk new`` writes for a folder of images, also as features of a frozen network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from topk_platform.cli.new.data_code import DataCode, has_tail
from topk_platform.data.images.listing import FileList
from topk_platform.data.images.own_files import own_files
from topk_platform.errors import UserError
from topk_platform.specs.checks import first_few, plural

__all__ = ["FEATURES_PIXELS", "images_code", "on_features"]

FEATURES_PIXELS = 160
"""The default side of images for a backbone: 50 images of this size take a second on two cores."""

_BACKBONE = "efficientnet_lite0"
_HELD_OUT = ("validation", "test")
_FRACTION = 0.1  # what image_folder takes of each class for a split without images
_MANY = 20_000  # from so many photos on, a network of one's own learns about as well as a frozen one


def images_code(folder: Path, size: int, groups: str, labels: str, drop_copies: bool) -> DataCode:
    """Return the code of a study's images, ``CLASS/IMAGE``, ``train/CLASS/IMAGE``, or in a table of labels.

    Args:
        folder: The folder of images.
        size: The side of the images in pixels.
        groups: The pattern or file of their groups, see :func:`topk_platform.data.image_folder`; empty for none.
        labels: The path of a table of their labels; empty where folders are the classes.
        drop_copies: Whether images that a later split has are left out of training.

    Raises:
        UserError: if the folder has no images or stray folders of splits, or an image's class or group is not known.
    """
    table = os.path.relpath(labels, folder) if labels else ""
    files, _ = own_files("--from", folder, table, groups, keep=False)
    counts = torch.bincount(files.labels[files.rows["train"]], minlength=len(files.classes)).tolist()
    more = {"groups": groups, "labels": table, "copies": "drop" if drop_copies else ""}
    return DataCode(
        title=f"on the images of {folder.name}",
        folder=folder.parent,
        classes=len(files.classes),
        network="convnet",
        dataset="image_folder",
        options={
            "folder": folder.name,
            "size": size,
            **{name: value for name, value in more.items() if value},
        },
        names=("Augmentation",),
        augmentation=f", augmentation=Augmentation(crop={size // 8}, flip=True)",
        tested=len(files.rows["test"]) if "test" in files.rows else _share(counts),
        tail=has_tail(counts),
        summary=_summary(files, counts, groups),
        notes=tuple(filter(None, ("" if labels else _nested(files), _few(files, counts), files.note))),
        few=len(files) < _MANY,
    )


def _summary(files: FileList, counts: Sequence[int], groups: str) -> str:
    """Return the numbers of classes and images, and where validation and test come from, in a sentence."""
    held = {name: len(rows) for name, rows in files.rows.items() if name != "train"}
    each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    parts = [f"{len(counts):,} classes", plural(len(files), "image"), f"{each} of each class"]
    parts += [f"{count:,} for {name} by its folder or the table" for name, count in held.items()]
    share = _share(counts)
    dealt = " and ".join(f"about {share:,} for {name}" for name in _HELD_OUT if name not in held)
    whole = ", in whole groups" if groups else ""
    return ", ".join(parts) + (f"; taken from those to train on{whole}: {dealt}" if dealt else "")


def _share(counts: Sequence[int]) -> int:
    """Return how many images are taken for a split that has none of its own."""
    return sum(max(1, round(_FRACTION * count)) for count in counts)


def _nested(files: FileList) -> str:
    """Return a note if all images lie in folders of their class's folder, which may be the classes; else empty."""
    depth = 2 if (files.root / "train").is_dir() else 1
    inner: dict[str, set[str]] = {}
    for path in files.paths(files.rows["train"]):
        *folders, _ = Path(path).parts
        if len(folders) <= depth:
            return ""
        inner.setdefault(folders[depth - 1], set()).add(folders[depth])
    same = sorted(set.intersection(*inner.values()))
    lead = f"the classes are {first_few(sorted(inner))}, and the images of each are in folders"
    if len(same) > 1:
        return f"{lead}{first_few(same)}: if those are the classes, call the folders of the splits train, val and test"
    lower = sorted(f"{name}/{folder}" for name, of in inner.items() for folder in of)
    return (
        f"{lead} inside them, {len(lower)} in all: {first_few(lower)}. If those are the classes, move each up "
        "beside the others"
    )


def _few(files: FileList, counts: Sequence[int]) -> str:
    """Return a note that names the first classes with too few images; empty if there is none."""
    least = 4 - len(files.rows)
    few = first_few([f"{name} ({n})" for name, n in zip(files.classes, counts, strict=True) if n < least])
    if not few:
        return ""
    return (
        f"fewer images than the {least} that a class needs for its splits: {few}. Add images, move such folders away, "
        "or give folders val and test of your own: `topk plan` refuses them as they are"
    )


def on_features(data: DataCode, pixels: int) -> DataCode:
    """Return the code of the same data as features of a frozen network.

    Args:
        data: The images.
        pixels: The side of the square to which the network's images are scaled.

    Raises:
        UserError: if the data are not images.
    """
    if data.network != "convnet":
        raise UserError("--features is for images: a folder of them, or uint8 arrays (n, 3, height, width)")
    options = {"of": data.dataset, **data.options, "backbone": _BACKBONE, "pixels": pixels}
    title = f"{data.title}, by heads on features of {_BACKBONE}"
    return replace(
        data, title=title, dataset="image_features", options=options, names=(), augmentation="", few=False
    )
