"""Pl@ntNet-300K from its published folders and metadata."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from topk_platform.data.dataset import Dataset
from topk_platform.data.datasets.image_files import Reading
from topk_platform.data.folder import data_folder
from topk_platform.data.images.listing import from_files
from topk_platform.errors import MissingDataError, UserError

__all__ = ["plantnet300k"]

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
            :class:`topk_platform.data.datasets.image_files.Reading`.

    Raises:
        MissingDataError: if ``plantnet_300K`` is not in the data folder, or some of its images are missing.
        UserError: if the metadata are in another format, or the splits have different species.

    Source:
        C. Garcin et al., Pl@ntNet-300K: a plant image dataset with high label ambiguity and a long-tailed
        distribution, NeurIPS Datasets and Benchmarks 2021.
    """
    root = data_folder() / _FOLDER
    if not (root / _METADATA).is_file():
        raise MissingDataError(f"dataset plantnet300k is not on disk: {root} lacks {_METADATA}. {_GET}")
    listed = partial(_listed, "images/" if (root / "images" / "train").is_dir() else "images_")
    files = from_files("plantnet300k", root, dict.fromkeys(_SPLITS, _METADATA), listed, _GET)
    how = Reading(size, resize, unreadable)
    splits = how.splits(how.files(files))
    return Dataset(splits["train"], splits["validation"], splits["test"], classes=len(files.classes))


def _listed(prefix: str, file: Path, split: str) -> list[tuple[str, str]]:
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
