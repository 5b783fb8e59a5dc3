"""Photos of species: iNaturalist's competition datasets by their public lists, and Pl@ntNet-300K."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
from torch import Generator

from topk_platform.data.dataset import Dataset
from topk_platform.data.datasets.image_files import readable, splits_of
from topk_platform.data.folders import check_on_disk, data_folder
from topk_platform.data.images.listing import FileList, from_files
from topk_platform.data.splitting import held_out_fraction
from topk_platform.errors import UserError
from topk_platform.specs.checks import check

__all__ = ["inaturalist", "plantnet300k"]

_YEARS = (2017, 2018, 2019)
_PARTS = {"train": "train", "test": "val"}


def inaturalist(
    year: int = 2018,
    size: int = 224,
    resize: int = 256,
    validation: float = 0.1,
    unreadable: str = "fatal",
) -> Dataset:
    """Return iNaturalist 2017, 2018 or 2019; images are read when they are needed.

    The lists ``train2018.json`` and ``val2018.json`` name the images and their classes; labels are the classes' ids.
    The official validation images are the test split, as is usual, because the labels of the test images were never
    published. A fixed part of each class's training images is held out for validation, but never the only image of a
    class. The superclasses are iNaturalist's super categories, such as Plantae.

    ====  =======  =========  =======
    year  classes  training   test
    ====  =======  =========  =======
    2017  5,089    579,184    95,986
    2018  8,142    437,513    24,426
    2019  1,010    265,213    3,030
    ====  =======  =========  =======

    Args:
        year: 2017, 2018 or 2019.
        size: Height and width of the network's input. The input is the centre crop of the scaled image, or a random
            crop in training with ``Augmentation(window=True)``.
        resize: Images are first scaled so that their shorter side has this many pixels.
        validation: The fraction of each class's training images to hold out, in ``(0, 1)``.
        unreadable: ``"fatal"`` or ``"skip"``: what to do about images that cannot be read, see
            :func:`topk_platform.data.datasets.image_files.readable`.

    Raises:
        MissingDataError: if the lists or their images are not in the year's folder, such as ``inaturalist2018``, in the
            data folder.
        UserError: if there is no such year, a list is in another format, or the lists have different classes.

    Source:
        G. Van Horn et al., The iNaturalist Species Classification and Detection Dataset, CVPR 2018, and the
        competitions of the years at https://github.com/visipedia/inat_comp.
    """
    check(year in _YEARS, f"dataset inaturalist: year must be one of {list(_YEARS)}, got {year!r}")
    root = data_folder() / f"inaturalist{year}"
    files = {part: f"{name}{year}.json" for part, name in _PARTS.items()}
    where = (
        f"Unpack the year's images and its lists of training and validation, which "
        f"https://github.com/visipedia/inat_comp/tree/master/{year} links to, in {root}, or name the folder that holds "
        f"{root.name} with --data DIR or TOPK_DATA"
    )
    check_on_disk("inaturalist", root, files.values(), where)
    listed = from_files("inaturalist", root, files, _of_coco, where)
    splits = splits_of(readable(listed, resize, unreadable), size, resize)
    whole = splits["train"]
    rest, held = held_out_fraction(whole.labels, validation, Generator().manual_seed(year))
    return Dataset(
        train=whole.take(rest),
        validation=whole.take(held),
        test=splits["test"],
        classes=len(listed.classes),
        superclasses=_superclasses(listed),
    )


def _of_coco(file: Path, _split: str) -> list[tuple[str, str]]:
    """Return the images in a list of COCO's format, in the order of their paths, with the ids of their classes."""
    try:
        content = json.loads(file.read_bytes())
        names = {image["id"]: str(image["file_name"]) for image in content["images"]}
        return sorted(
            (names[entry["image_id"]], str(int(entry["category_id"]))) for entry in content["annotations"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} must hold images with id and file_name and annotations with image_id and category_id, "
            f"got {error!r}"
        ) from error


def _superclasses(files: FileList) -> tuple[int, ...]:
    """Return the number of each class's super category, the folder above that of the class."""
    _, first = np.unique(files.labels.numpy(), return_index=True)
    above = [files.path(int(row)).parts[-3] for row in first]
    number = {name: index for index, name in enumerate(sorted(set(above)))}
    return tuple(number[name] for name in above)


_FOLDER = "plantnet_300K"
_METADATA = "plantnet300K_metadata.json"
_SPLITS = {"train": "train", "validation": "val", "test": "test"}
_GET = (
    "Unpack plantnet_300K.zip from https://zenodo.org/records/5645731 so that they are there, or name the folder "
    f"that holds {_FOLDER} with --data DIR or TOPK_DATA"
)


def plantnet300k(size: int = 224, resize: int = 256, unreadable: str = "fatal") -> Dataset:
    """Return Pl@ntNet-300K, 306,146 images of 1,081 species in its own splits; images are read when they are needed.

    The dataset's metadata give each image's species and split. The training images are in
    ``images_train / species / id.jpg`` or ``images / train / species / id.jpg``, those of ``val`` and ``test``
    likewise. Species are numbered in the order of their ids as strings.

    Args:
        size: Height and width of the network's input. The input is the centre crop of the scaled image, or a random
            crop in training with ``Augmentation(window=True)``.
        resize: Images are first scaled so that their shorter side has this many pixels.
        unreadable: ``"fatal"`` or ``"skip"``: what to do about images that cannot be read, see
            :func:`topk_platform.data.datasets.image_files.readable`.

    Raises:
        MissingDataError: if ``plantnet_300K`` is not in the data folder, or some of its images are missing.
        UserError: if the metadata are in another format, or the splits have different species.

    Source:
        C. Garcin et al., Pl@ntNet-300K: a plant image dataset with high label ambiguity and a long-tailed
        distribution, NeurIPS Datasets and Benchmarks 2021.
    """
    root = data_folder() / _FOLDER
    check_on_disk("plantnet300k", root, [_METADATA], _GET)
    listed = partial(_of_metadata, "images/" if (root / "images" / "train").is_dir() else "images_")
    files = from_files("plantnet300k", root, dict.fromkeys(_SPLITS, _METADATA), listed, _GET)
    splits = splits_of(readable(files, resize, unreadable), size, resize)
    return Dataset(splits["train"], splits["validation"], splits["test"], classes=len(files.classes))


def _of_metadata(prefix: str, file: Path, split: str) -> list[tuple[str, str]]:
    """Return the images of a split, in the order of their paths, with their species."""
    try:
        entries = json.loads(file.read_bytes())
        name_of = _SPLITS[split]
        images = [
            (f"{prefix}{name_of}/{entry['species_id']}/{name}.jpg", str(entry["species_id"]))
            for name, entry in entries.items()
            if entry["split"] == name_of
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} must map each image's id to an object with species_id and split, got {error!r}"
        ) from error
    return sorted(images)
