"""What ``topk new`` writes about somebody's own images or arrays: the dataset, its options, and what to know."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from topk_platform.data import check_source, data_at, read
from topk_platform.data.images.listing import FileList
from topk_platform.data.images.own_files import own_files
from topk_platform.errors import UserError
from topk_platform.specs import FEATURES, Regime, Scalar
from topk_platform.specs.checks import first_few, plural

__all__ = ["OwnData", "own_data"]

_PIXELS = 32
_FEATURES_PIXELS = 160  # the default for a backbone: 50 images of this size take a second on two cores
_BACKBONE = "efficientnet_lite0"
_HELD_OUT = ("validation", "test")
_FRACTION = 0.1  # what image_folder takes of each class for a split without images
_MANY = 20_000  # from so many photos on, a network of one's own learns about as well as a frozen one
_TAIL = 5  # the most frequent class has at least so many times as many samples as the rarest
_ARRAYS = (".npz", ".pt")
_TABLES = (".csv", ".npy", ".tsv", ".txt")
_SAVE = ": write your arrays into one file, numpy.savez('data.npz', x=inputs, y=labels)"


@dataclass(frozen=True)
class OwnData:
    """Somebody's own data, as a study file has them.

    Args:
        title: The data in words.
        folder: The folder of datasets that contains them.
        classes: How many classes there are.
        network: A network that fits the data.
        dataset: The regime's dataset.
        options: Its options.
        tested: The number of test samples.
        tail: Whether the most frequent class has at least five times as many samples as the rarest.
        summary: The numbers of classes and samples in a sentence.
        notes: Notes for the user about the data.
        few: Whether a frozen network is likely to do better, because there are few images.
        crop: By how many pixels training images are moved at random; 0 for data that are not augmented.
    """

    title: str
    folder: Path
    classes: int
    network: str
    dataset: str
    options: Mapping[str, Scalar] = field(default_factory=dict)
    tested: int = 0
    tail: bool = False
    summary: str = ""
    notes: tuple[str, ...] = ()
    few: bool = False
    crop: int = 0

    @property
    def regime(self) -> str:
        """The code of the regime, with texts in double quotes as in the rest of a study file."""
        name = "images" if self.network == "convnet" else "arrays"
        # JSON's escapes of letters are not used: JSON writes an emoji as two, which Python takes for two letters.
        options = json.dumps(dict(self.options), ensure_ascii=False)
        return f'Regime("{name}", "{self.dataset}", options={options})'


def own_data(
    source: Path, size: int | None, groups: str, labels: str, *, features: bool, drop_copies: bool
) -> OwnData:
    """Return what a study file has of a folder of images, or of a file of arrays.

    Args:
        source: A folder of images, or a file of arrays.
        size: The side of the images; None for 32, or 160 for features.
        groups: The pattern, file or array of the samples' groups; empty for none.
        labels: The path of a table of the images' labels; empty where folders are the classes.
        features: Whether heads are trained on the features of a frozen network.
        drop_copies: Whether images that a later split has are left out of training.

    Raises:
        UserError: if the data cannot be read or have fewer than two classes, or an option is not for them.
    """
    if labels and not source.is_dir():
        raise UserError(f"--labels is for a folder of images, got {labels!r} with --from {str(source)!r}")
    if size is not None and not features and source.is_file():
        raise UserError(
            f"--size is for images that are scaled, not for arrays, which stay as they are, got {size}"
        )
    more = {"groups": groups, "copies": "drop" if drop_copies else ""}
    given = {name: value for name, value in more.items() if value}
    if source.is_dir():
        data = _images(source, size or (_FEATURES_PIXELS if features else _PIXELS), given, labels)
    else:
        data = _arrays(source, given)
    if data.classes < 2:
        raise UserError(
            f"--from must hold at least 2 classes, each a folder of images, got {data.classes} in {source}"
        )
    return _on_features(data, size or _FEATURES_PIXELS) if features else data


def _arrays(file: Path, given: Mapping[str, str]) -> OwnData:
    """Return what there is of the arrays in a file, which is read as a study reads it."""
    if file.suffix not in _ARRAYS or not file.is_file():
        missing = "" if file.exists() else ", which does not exist"
        remedy = _SAVE if file.suffix in _TABLES and not missing else ""
        raise UserError(
            f"--from must be a folder of images or a file {' or '.join(_ARRAYS)}, got {str(file)!r}{missing}{remedy}"
        )
    regime = Regime("arrays", "array_file", options={"file": file.name, **given})
    with data_at(file.parent):
        source = read(regime)
        check_source(regime, source)
    data = source.example
    counts = data.class_counts[data.class_counts > 0].tolist()
    samples = (f"{len(split):,} samples for {name}" for name, split in data.splits.items())
    return OwnData(
        title=f"on the arrays of {file.name}",
        folder=file.parent,
        classes=data.classes,
        network="convnet" if data.train.inputs.dtype == torch.uint8 else "mlp",
        dataset=regime.dataset,
        options=regime.options,
        tested=len(data.test),
        tail=_has_tail(counts),
        summary=f"{data.classes} classes, {', '.join(samples)}",
        notes=data.notes,
    )


def _images(folder: Path, size: int, given: Mapping[str, str], labels: str) -> OwnData:
    """Return what there is of images: ``CLASS/IMAGE``, ``train/CLASS/IMAGE``, or in a table of labels."""
    table = os.path.relpath(labels, folder) if labels else ""
    files, _ = own_files("--from", folder, table, given.get("groups", ""), keep=False)
    counts = torch.bincount(files.labels[files.rows["train"]], minlength=len(files.classes)).tolist()
    return OwnData(
        title=f"on the images of {folder.name}",
        folder=folder.parent,
        classes=len(files.classes),
        network="convnet",
        dataset="image_folder",
        options={"folder": folder.name, "size": size, **given, **({"labels": table} if table else {})},
        tested=len(files.rows["test"]) if "test" in files.rows else _share(counts),
        tail=_has_tail(counts),
        summary=_summary(files, counts, grouped="groups" in given),
        notes=tuple(filter(None, ("" if labels else _nested(files), _few(files, counts), files.note))),
        few=len(files) < _MANY,
        crop=size // 8,
    )


def _has_tail(counts: Sequence[int]) -> bool:
    return max(counts, default=0) >= _TAIL * min(counts, default=0) > 0


def _summary(files: FileList, counts: Sequence[int], *, grouped: bool) -> str:
    """Return the numbers of classes and images, and where validation and test come from, in a sentence."""
    held = {name: len(rows) for name, rows in files.rows.items() if name != "train"}
    each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    parts = [f"{len(counts):,} classes", plural(len(files), "image"), f"{each} of each class"]
    parts += [f"{count:,} for {name} by its folder or the table" for name, count in held.items()]
    share = _share(counts)
    dealt = " and ".join(f"about {share:,} for {name}" for name in _HELD_OUT if name not in held)
    whole = ", in whole groups" if grouped else ""
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


def _on_features(data: OwnData, pixels: int) -> OwnData:
    """Return the same data as features of a frozen network, whose images are scaled to squares of so many pixels."""
    if data.network != "convnet":
        raise UserError("--features is for images: a folder of them, or uint8 arrays (n, 3, height, width)")
    options = {"of": data.dataset, **data.options, "backbone": _BACKBONE, "pixels": pixels}
    title = f"{data.title}, by heads on features of {_BACKBONE}"
    return replace(data, title=title, dataset=FEATURES, options=options, few=False, crop=0)
