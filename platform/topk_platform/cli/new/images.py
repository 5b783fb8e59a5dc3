"""The data of a study that ``topk new`` writes for a folder of images, also as features of a frozen network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path

from topk_platform.cli.new.data_code import DataCode, has_tail
from topk_platform.data.datasets.own import split_folders
from topk_platform.data.images.listing import class_folders, images_below
from topk_platform.data.images.walking import folders_below
from topk_platform.data.splits.grouping import grouped_files
from topk_platform.errors import UserError
from topk_platform.specs.checks import first_few

__all__ = ["FEATURES_PIXELS", "images_code", "on_features"]

FEATURES_PIXELS = 160
"""The default side of images for a backbone: 50 images of this size take a second on two cores."""

_SPLITS = 3
_BACKBONE = "efficientnet_lite0"
_PHOTOS = (".avif", ".gif", ".heic", ".heif", ".jfif")  # as phones and browsers save them


def images_code(folder: Path, size: int, groups: str) -> DataCode:
    """Return the code of a study's images, ``CLASS/IMAGE`` or ``train/CLASS/IMAGE``.

    Args:
        folder: The folder of images.
        size: The side of the images in pixels.
        groups: The pattern or file of their groups, see :func:`topk_platform.data.image_folder`; empty for none.

    Raises:
        UserError: if the folder has folders of splits that would not be read, or the group of an image is not known.
    """
    splits = split_folders(folder)
    images = {
        split: {name: list(images_below(part / name)) for name in class_folders(part)}
        for split, part in splits.items()
    }
    if groups:
        _check_groups(folder, splits, images, groups)
    counts = {name: len(files) for name, files in images["train"].items()}
    read = {file for classes in images.values() for files in classes.values() for file in files}
    return DataCode(
        title=f"on the images of {folder.name}",
        folder=folder.parent,
        classes=len(counts),
        network="convnet",
        dataset="image_folder",
        options={"folder": folder.name, "size": size, **({"groups": groups} if groups else {})},
        names=("Augmentation",),
        augmentation=f", augmentation=Augmentation(crop={size // 8}, flip=True)",
        tail=has_tail(counts.values()),
        notes=tuple(filter(None, _notes(folder, splits, images["train"], read))),
    )


def _notes(
    folder: Path, splits: Mapping[str, Path], train: Mapping[str, list[str]], read: Container[str]
) -> tuple[str, ...]:
    counts = {name: len(files) for name, files in train.items()}
    return _nested(splits["train"], train), _few(counts, 1 + _SPLITS - len(splits)), _not_read(folder, read)


def _nested(folder: Path, images: Mapping[str, list[str]]) -> str:
    """Return a note if all classes have their images in folders of the same names, as splits have; else empty."""
    inner = [
        {
            path.relative_to(folder / name).parts[0]
            for path in map(Path, files)
            if path.parent != folder / name
        }
        for name, files in images.items()
    ]
    direct = any(Path(file).parent == folder / name for name, files in images.items() for file in files)
    same = set.intersection(*inner) if inner else set()
    if direct or len(same) < 2:
        return ""
    return (
        f"the classes are {first_few(sorted(images))}, and the images of each are in folders {first_few(sorted(same))}"
        ": if those are the classes, call the folders of the splits train, val and test"
    )


def _check_groups(
    folder: Path, splits: Mapping[str, Path], images: Mapping[str, Mapping[str, list[str]]], groups: str
) -> None:
    """Raise ``UserError`` unless the group of every image is known."""
    names = {
        split: [Path(file).relative_to(folder).as_posix() for files in classes.values() for file in files]
        for split, classes in images.items()
    }
    parts = {split: part.relative_to(folder).as_posix() for split, part in splits.items()}
    grouped_files({}, names, parts, folder, groups)


def _few(counts: Mapping[str, int], least: int) -> str:
    """Return a note that names the first classes with too few images; empty if there is none."""
    few = first_few([f"{name} ({count})" for name, count in counts.items() if count < least])
    if not few:
        return ""
    return (
        f"fewer images than the {least} that a class needs for its splits: {few}. Add images, move such folders away, "
        "or give folders val and test of your own: `topk plan` refuses them as they are"
    )


def _not_read(folder: Path, read: Container[str]) -> str:
    """Return a note that counts the files that are not read, by their ending; empty if there are none."""
    others: Counter[str] = Counter()
    for inner, names in folders_below(folder):
        others.update(
            Path(name).suffix.lower() or "without an ending"
            for name in names
            if name[0] != "." and str(inner / name) not in read
        )
    kinds = ", ".join(f"{count} {ending}" for ending, count in sorted(others.items()))
    photos = ", ".join(ending for ending in _PHOTOS if others[ending])
    as_png = ["drawings (.svg) as .png"] if others[".svg"] else []
    as_jpg = [f"photos ({photos}) as .jpg"] if photos else []
    hint = ": save " + " and ".join(as_png + as_jpg) if as_png or as_jpg else ""
    return f"files not read, as they are no images in the folder of a class: {kinds}{hint}" if kinds else ""


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
    return replace(data, title=title, dataset="image_features", options=options, names=(), augmentation="")
