"""ImageNet and its long-tailed part, from their usual folders."""

from __future__ import annotations

import os
from pathlib import Path

from torch import Generator

from topk_platform.data.dataset import Dataset
from topk_platform.data.datasets.image_files import readable, splits_of
from topk_platform.data.folders import check_on_disk, data_folder
from topk_platform.data.images.listing import FileList, from_files, parse_lines
from topk_platform.data.images.own_files import from_folders
from topk_platform.data.splitting import held_out
from topk_platform.specs.checks import check

__all__ = ["imagenet", "imagenet_lt"]

_FOLDER = "imagenet"
_FOLDERS = ("train", "val")
_SPLIT_SEED = 2012
_ARCHIVES = ("ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar")
_LISTS = {
    "train": "ImageNet_LT_train.txt",
    "validation": "ImageNet_LT_val.txt",
    "test": "ImageNet_LT_test.txt",
}


def imagenet(
    size: int = 224,
    resize: int = 256,
    validation: int = 50,
    classes: int = 1000,
    unreadable: str = "fatal",
) -> Dataset:
    """Return ImageNet: 1,231,167 images for training, 50,000 each for validation and test.

    Images are read when they are needed. By default the validation split has 50 of each class's training images, always
    the same ones. The test split is the official validation set. berrada2018's subsets of 5, 10, 25 and 50 % are the
    conditions ``PerClass(64)``, ``PerClass(128)``, ``PerClass(320)`` and ``PerClass(640)``.

    Args:
        size: Height and width of the network's input. The input is the centre crop of the scaled image, or a random
            crop in training with ``Augmentation(window=True)``.
        resize: Images are first scaled so that their shorter side has this many pixels.
        validation: The number of training images of each class to hold out.
        classes: The expected number of classes. Another number is an error, so an incomplete ImageNet is noticed.
        unreadable: ``"fatal"`` or ``"skip"``: what to do about images that cannot be read, see
            :func:`topk_platform.data.datasets.image_files.readable`.

    Raises:
        MissingDataError: if ``imagenet/train`` or ``imagenet/val`` is not in the data folder.
        UserError: if they do not hold a folder for each class, or hold images or archives outside these folders.

    Source:
        O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015; berrada2018 5.2.
    """
    root = _root("imagenet")
    files = from_folders(root, {"train": "train", "test": "val"})
    _check_classes("imagenet", files, classes)
    splits = splits_of(readable(files, resize, unreadable), size, resize)
    whole = splits["train"]
    rest, held = held_out(whole.labels, validation, Generator().manual_seed(_SPLIT_SEED))
    return Dataset(whole.take(rest), whole.take(held), splits["test"], classes=classes)


def imagenet_lt(
    size: int = 224, resize: int = 256, classes: int = 1000, unreadable: str = "fatal"
) -> Dataset:
    """Return ImageNet-LT: 115,846 images for training, 20,000 for validation, 50,000 for test.

    Images are read when they are needed.

    Args:
        size: Height and width of the network's input, see :func:`imagenet`.
        resize: The shorter side of the scaled images, in pixels.
        classes: The expected number of classes.
        unreadable: ``"fatal"`` or ``"skip"``, see :func:`imagenet`.

    Raises:
        MissingDataError: if ImageNet, or one of the three lists beside its folders, is not in the data folder.
        UserError: if a line of a list is not a path and a label, or a list has other classes or another number of them.

    Source:
        Z. Liu et al., Large-Scale Long-Tailed Recognition in an Open World, CVPR 2019.
    """
    root = _root("imagenet_lt")
    get = (
        "Get the lists from https://github.com/zhmiao/OpenLongTailRecognition-OLTR and put them there, beside train "
        "and val"
    )
    check_on_disk("imagenet_lt", root, _LISTS.values(), get)
    where = "They are those of ILSVRC2012, with train/CLASS/IMAGE and val/CLASS/IMAGE"
    files = from_files("imagenet_lt", root, _LISTS, parse_lines, where)
    _check_classes("imagenet_lt", files, classes)
    splits = splits_of(readable(files, resize, unreadable), size, resize)
    return Dataset(splits["train"], splits["validation"], splits["test"], classes=classes)


def _root(dataset: str) -> Path:
    root = data_folder() / _FOLDER
    get = (
        f"Get {', '.join(_ARCHIVES)} from https://image-net.org/download and unpack them there with "
        "torchvision.datasets.ImageNet(folder, 'train') and (folder, 'val'), as train/n01440764/*.JPEG and "
        f"val/n01440764/*.JPEG, or name the folder that holds {_FOLDER} with --data DIR or TOPK_DATA"
    )
    check_on_disk(dataset, root, _FOLDERS, get)
    for part in _FOLDERS:
        stray = next((e.name for e in os.scandir(root / part) if e.name.endswith((".tar", ".JPEG"))), None)
        check(
            stray is None,
            f"dataset {dataset}: {root / part / str(stray)} must be in its class's folder; if unpacking was "
            f"interrupted, delete {root / part} and unpack again",
        )
    return root


def _check_classes(dataset: str, files: FileList, classes: int) -> None:
    count = len(files.classes)
    check(count == classes, f"dataset {dataset}: {files.root} must have {classes} classes, got {count}")
