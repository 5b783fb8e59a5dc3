"""Small stand-ins for the large datasets, on which ``--smoke`` trains; the datasets' own readers read them.

Each function takes the options of the dataset with the same name, and the number of classes. Nothing has to be on disk
beforehand: image files are written once per machine, in ``TOPK_CACHE`` or else ``~/.cache/topk``. That folder may be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import pickle
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from topk_platform import data
from topk_platform.data.datasets.cifar import SUPERCLASSES
from topk_platform.testing import standins
from topk_platform.testing.standins import Painter

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR100

__all__ = [
    "SmallCifar100",
    "cifar100",
    "imagenet",
    "imagenet_lt",
    "inaturalist",
    "kanji",
    "letters",
    "plantnet300k",
    "write_cifar100",
    "written",
]

_CHANGING = ("numpy", "pillow")  # packages whose versions may change the bytes of images
_TRAIN = 8  # training images per class; three times as many in the first class of a long tail
_HELD_OUT = 2


def cifar100(classes: int = 100) -> data.Dataset:
    """Return the stand-in for CIFAR-100, with four training images per class."""
    with TemporaryDirectory() as folder:
        small = write_cifar100(Path(folder), classes, train=5, test=1)
        return data.read_cifar100(small.folder, small.reader)


def imagenet(
    size: int = 224, resize: int = 256, validation: int = 50, classes: int = 1000, unreadable: str = "fatal"
) -> data.Dataset:
    """Return the stand-in for ImageNet, with eight training images per class."""
    folder = written(standins.write_imagenet, classes=classes, train=_TRAIN + validation)
    with data.data_at(folder):
        return data.imagenet(size, resize, validation, classes, unreadable)


def imagenet_lt(
    size: int = 224, resize: int = 256, classes: int = 1000, unreadable: str = "fatal"
) -> data.Dataset:
    """Return the stand-in for ImageNet-LT, with 24 training images in the first class, falling to one in the last."""
    folder = written(standins.write_imagenet_lt, classes=classes, train=3 * _TRAIN, validation=_HELD_OUT)
    with data.data_at(folder):
        return data.imagenet_lt(size, resize, classes, unreadable)


def inaturalist(
    year: int = 2018,
    size: int = 224,
    resize: int = 256,
    validation: float = 0.1,
    unreadable: str = "fatal",
    classes: int = 8142,
) -> data.Dataset:
    """Return the stand-in for iNaturalist, with 24 images in the first class, falling to two in the last.

    A fraction of them is held out for validation.
    """
    folder = written(standins.write_inaturalist_lists, year=year, classes=classes, train=3 * _TRAIN)
    with data.data_at(folder):
        return data.inaturalist(year, size, resize, validation, unreadable)


def letters(
    file: str = "", exchanged: bool = False, superclasses: bool = True, classes: int = 62
) -> data.Dataset:
    """Return the first characters of :func:`topk_platform.data.letters`, with eight training images per class."""
    return _smallest(data.letters(file, exchanged, superclasses), classes)


def kanji(classes: int = 2965, file: str = "", exchanged: bool = False) -> data.Dataset:
    """Return the first characters of :func:`topk_platform.data.kanji`, with eight training images per class."""
    return _smallest(data.kanji(classes, file, exchanged), classes)


def _smallest(whole: data.Dataset, classes: int) -> data.Dataset:
    def first(split: data.Split, samples: int) -> data.Split:
        return split.take(
            torch.cat([torch.nonzero(split.labels == c).flatten()[:samples] for c in range(classes)])
        )

    train, validation, test = map(first, whole.splits.values(), (_TRAIN, _HELD_OUT, _HELD_OUT))
    groups = torch.tensor((whole.superclasses or (0,) * classes)[:classes])
    numbered = torch.unique(groups, return_inverse=True)[1]
    return data.Dataset(train, validation, test, classes, tuple(numbered.tolist()))


def plantnet300k(
    size: int = 224, resize: int = 256, classes: int = 1081, unreadable: str = "fatal"
) -> data.Dataset:
    """Return the stand-in for Pl@ntNet-300K, with 24 training images in the first species, falling to one."""
    folder = written(standins.write_plantnet300k, species=classes, train=3 * _TRAIN, validation=_HELD_OUT)
    with data.data_at(folder):
        return data.plantnet300k(size, resize, unreadable)


def written(write: Callable[..., Path], **options: int) -> Path:
    """Return a data folder with the files of a writer; the first process that needs it writes it.

    The name of the folder is a hash of everything that its content depends on. The folder is moved into place only
    when it is complete.

    Args:
        write: A function of :mod:`topk_platform.testing.standins`, called with a data folder and the options.
        options: The options of the function.

    Raises:
        OSError: if the folder cannot be written.
    """
    folder = _root() / "standins" / _name(write, options)
    if folder.is_dir():
        return folder
    part = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    try:
        write(part, **options)
        part.rename(folder)
    except OSError:
        if not folder.is_dir():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _root() -> Path:
    # Not in the data folder: nodes of a cluster may lack it, and it may belong to another user.
    named = os.environ.get("TOPK_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "topk"


def _name(write: Callable[..., Path], options: dict[str, int]) -> str:
    state = hashlib.sha256(Path(standins.__file__).read_bytes())
    versions = [importlib.metadata.version(package) for package in _CHANGING]
    state.update(repr((write.__name__, sorted(options.items()), versions)).encode())
    return state.hexdigest()[:20]


@dataclass(frozen=True)
class SmallCifar100:
    """The files that :func:`write_cifar100` wrote, and their content.

    Args:
        folder: The data folder.
        reader: torchvision's reader with the checksums of these files instead of the original's.
        train: The content of the training file.
        test: The content of the test file.
    """

    folder: Path
    reader: type[CIFAR100]
    train: dict[str, Any]
    test: dict[str, Any]


def write_cifar100(
    folder: Path,
    classes: int = 100,
    train: int = 10,
    test: int = 2,
    seed: int = 0,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> SmallCifar100:
    """Write ``cifar-100-python`` in the original's file format.

    Args:
        folder: The data folder.
        classes: The number of classes, the first of CIFAR-100's.
        train: Training images per class.
        test: Test images per class.
        seed: Seed of the images.
        change: A function that may modify the content of the training file before it is written.
    """
    fine = sorted(name for of in SUPERCLASSES.values() for name in of.split())[:classes]
    painter = Painter(classes, seed)
    contents = {"train": _batch(painter, train, classes), "test": _batch(painter, test, classes)}
    names = {"fine_label_names": fine}
    (change or (lambda _: None))(contents["train"])
    location = folder / "cifar-100-python"
    location.mkdir(parents=True)
    sums = {}
    for name, content in {**contents, "meta": names}.items():
        with (location / name).open("wb") as file:
            pickle.dump(content, file, protocol=2)
        sums[name] = hashlib.md5((location / name).read_bytes()).hexdigest()  # noqa: S324 - as torchvision checks it
    return SmallCifar100(folder, _reader_of(sums), contents["train"], contents["test"])


def _batch(painter: Painter, per_class: int, classes: int) -> dict[str, Any]:
    fine = painter.generator.permutation(np.repeat(np.arange(classes), per_class)).tolist()
    planes = [painter.pixels(label, (32, 32)).transpose(2, 0, 1).reshape(3072) for label in fine]
    return {
        "filenames": [f"{label}_{index}.png" for index, label in enumerate(fine)],
        "batch_label": "training batch 1 of 1",
        "fine_labels": fine,
        "data": np.stack(planes),
    }


def _reader_of(sums: dict[str, str]) -> type[CIFAR100]:
    from torchvision.datasets import CIFAR100  # noqa: PLC0415 - a second of import

    lists = {f"{part}_list": [[part, sums[part]]] for part in ("train", "test")}
    meta = {"filename": "meta", "key": "fine_label_names", "md5": sums["meta"]}
    return type("Small", (CIFAR100,), {**lists, "meta": meta})
