"""CIFAR-100 with its superclasses, from either form in which it is distributed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.datasets.parquet import read_parquet_splits
from topk_platform.data.folders import data_folder
from topk_platform.data.splitting import stratified
from topk_platform.errors import MissingDataError, UserError
from topk_platform.specs.checks import first_few

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR100

__all__ = ["SUPERCLASSES", "cifar100", "download_cifar100", "read_cifar100"]

_SPLIT_SEED = 100
_VALIDATION = 0.1
_FOLDER = "cifar100"  # the folder of the Parquet files
_SIDE = 32

SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
"""The classes of each superclass, both in alphabetical order, which is that of their numbers."""


def cifar100() -> Dataset:
    """Return CIFAR-100, uint8 ``(n, 3, 32, 32)``: 45,000 images for training, 5,000 for validation, 10,000 for test.

    The files may have either of these forms in the data folder; both give the same dataset, image for image:

    - ``cifar-100-python``: the original files, as torchvision reads and downloads them;
    - ``cifar100``: Parquet files, as Hugging Face distributes them, with the columns ``img``, ``fine_label`` and
      ``coarse_label``.

    The validation split has 50 of each class's 500 training images, always the same ones. The test split is the
    dataset's own. Images are in the order of a hash of their pixels, so that the form of the files does not matter.

    Raises:
        MissingDataError: if neither of these forms is in the data folder.
        UserError: if a checksum does not match, or the images are of other classes or of another size.

    Source:
        A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    folder = data_folder()
    if (folder / "cifar-100-python").is_dir() or not (folder / _FOLDER).is_dir():
        return read_cifar100(folder)
    return _from_parquet(folder / _FOLDER)


def read_cifar100(folder: Path, reader: type[CIFAR100] | None = None) -> Dataset:
    """Return the CIFAR-100 in ``folder / "cifar-100-python"``.

    Args:
        folder: The folder that holds ``cifar-100-python``.
        reader: A subclass of ``torchvision.datasets.CIFAR100`` with other files or checksums, such as those of a small
            excerpt. By default it is that class itself, which accepts only the files of the whole dataset.

    Raises:
        MissingDataError: if a file is missing.
        UserError: if a file's checksum does not match, or the classes are others.
    """
    reader = reader or _reader()
    try:
        train, test = reader(folder, train=True), reader(folder, train=False)
    # torchvision raises the same error for a missing file and for a wrong checksum.
    except RuntimeError as error:
        raise _trouble(folder, reader) from error
    whole, tested = (Split(_images(part.data), torch.tensor(part.targets)) for part in (train, test))
    return _assembled(whole, tested, tuple(train.classes), folder)


def _from_parquet(folder: Path) -> Dataset:
    splits = read_parquet_splits(folder, label="fine_label")
    train, test = splits["train"], splits.get("test")
    if test is None or set(splits) != {"train", "test"}:
        raise UserError(
            f"dataset cifar100: {folder} must hold files train-* and test-*, got {sorted(splits)}"
        )
    for part in splits.values():
        height, width = part.images.shape[2:]
        if (width, height) != (_SIDE, _SIDE):
            raise UserError(
                f"dataset cifar100: the images in {folder} must have {_SIDE} × {_SIDE} pixels, got {width} × {height}"
            )
    names = train.names or ()
    return _assembled(
        Split(train.images, train.numbered(names)),
        Split(test.images, test.numbered(names)),
        names,
        folder,
    )


def _superclasses_of(names: Sequence[str], folder: Path) -> tuple[int, ...]:
    """Return each class's superclass, by its name; of some classes alone, numbered without gaps."""
    number = {name: row for row, group in enumerate(SUPERCLASSES.values()) for name in group.split()}
    if unknown := sorted(set(names) - set(number)):
        raise UserError(
            f"dataset cifar100: {folder} must hold the classes of CIFAR-100, got {first_few(unknown)}"
        )
    return tuple(np.unique([number[name] for name in names], return_inverse=True)[1].tolist())


def _assembled(whole: Split, test: Split, names: tuple[str, ...], folder: Path) -> Dataset:
    """Return the dataset in the order of its images' hashes, so that the form of the files does not matter."""
    whole = whole.take(_order(whole))
    rest, validation = stratified(whole.labels, (_VALIDATION,), Generator().manual_seed(_SPLIT_SEED))
    return Dataset(
        train=whole.take(rest),
        validation=whole.take(validation),
        test=test.take(_order(test)),
        classes=len(names),
        superclasses=_superclasses_of(names, folder),
        names=names,
    )


def _order(split: Split) -> Tensor:
    """Return the rows in the order of a hash of their pixels; equal images are in the order of their classes."""
    images = split.tensor.contiguous().numpy()
    keys = [
        (hashlib.sha256(image).digest(), label)
        for image, label in zip(images, split.labels.tolist(), strict=True)
    ]
    return torch.tensor(sorted(range(len(keys)), key=keys.__getitem__))


def download_cifar100(folder: Path, reader: type[CIFAR100] | None = None) -> None:
    """Download CIFAR-100, 169 MB, into ``folder / "cifar-100-python"`` unless it exists, and check its checksums.

    Raises:
        UserError: if it cannot be downloaded or is damaged.
    """
    reader = reader or _reader()
    try:
        reader(folder, train=True, download=True)
    except (OSError, RuntimeError) as error:
        raise UserError(f"CIFAR-100 cannot be downloaded from {reader.url} to {folder}: {error}") from error


def _reader() -> type[CIFAR100]:
    from torchvision.datasets import CIFAR100  # noqa: PLC0415 - takes a second to import, and only this dataset needs it

    reader: type[CIFAR100] = CIFAR100
    return reader


def _trouble(folder: Path, reader: type[CIFAR100]) -> UserError:
    path = folder / reader.base_folder
    names = [name for name, _ in (*reader.train_list, *reader.test_list)] + [reader.meta["filename"]]
    missing = [name for name in names if not (path / name).is_file()]
    if missing:
        return MissingDataError(
            f"dataset cifar100 is not on disk: {path} lacks {', '.join(missing)}. Pass --download to fetch it "
            f"(169 MB), or unpack {reader.url} so that these files are there, or name the folder that holds "
            f"{reader.base_folder} with --data DIR or TOPK_DATA"
        )
    return UserError(
        f"dataset cifar100 in {path} is damaged: a file's md5 is not the original's. Delete the folder, then pass "
        f"--download or unpack {reader.url} there"
    )


def _images(data: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy(data).permute(0, 3, 1, 2).contiguous()
