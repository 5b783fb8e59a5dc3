"""Small folders of made-up image files in the layouts of the large datasets, written within seconds.

They are read in the same way as the originals, so tests and smoke runs need no download. An image is the coloured
pattern of its class with noise, so that a small network can learn something.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = [
    "Painter",
    "write_imagenet",
    "write_imagenet_lt",
    "write_inaturalist_lists",
    "write_plantnet300k",
]


class Painter:
    """Draws images of classes; the same seed gives the same images.

    Args:
        classes: The number of classes.
        seed: Seed of the images.
    """

    def __init__(self, classes: int, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.patterns = self.generator.integers(40, 216, (classes, 4, 4, 3))

    def pixels(self, label: int, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
        """Return an image ``(height, width, 3)``, by default with sides of 24 to 48 pixels."""
        height, width = self.generator.integers(24, 49, 2) if size is None else size
        rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
        grain = self.generator.integers(-32, 33, (height, width, 3))
        pixels: NDArray[np.uint8] = (
            (self.patterns[label][rows][:, columns] + grain).clip(0, 255).astype(np.uint8)
        )
        return pixels

    def write(self, path: Path, label: int, mode: str = "RGB", kind: str = "JPEG") -> None:
        """Write one image of a class; ``mode`` and ``kind`` are Pillow's mode and file format."""
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(self.pixels(label)).convert(mode).save(path, kind)


def _synsets(classes: int) -> list[str]:
    return [f"n{1440764 + 2773 * label:08}" for label in range(classes)]


def write_imagenet(folder: Path, classes: int = 4, train: int = 8, test: int = 3, seed: int = 0) -> Path:
    """Write ``imagenet/train`` and ``imagenet/val`` with equally many images per class; return the ``imagenet`` folder.

    As in the original, not all training images are RGB JPEGs: one is grey, one is CMYK, and one is a PNG named JPEG.

    Args:
        folder: The data folder.
        classes: The number of classes, named like WordNet's.
        train: Training images per class.
        test: Images per class in ``val``.
        seed: Seed of the images.
    """
    root, painter = folder / "imagenet", Painter(classes, seed)
    odd = {(0, 0): ("CMYK", "JPEG"), (0, 1): ("RGB", "PNG"), (1, 0): ("L", "JPEG")}
    for label, synset in enumerate(_synsets(classes)):
        for number in range(train):
            mode, kind = odd.get((label, number), ("RGB", "JPEG"))
            painter.write(root / "train" / synset / f"{synset}_{7 * number + 2}.JPEG", label, mode, kind)
        for number in range(test):
            name = f"ILSVRC2012_val_{number * classes + label + 1:08}.JPEG"
            painter.write(root / "val" / synset / name, label)
    return root


def write_imagenet_lt(
    folder: Path, classes: int = 4, train: int = 8, validation: int = 2, test: int = 3, seed: int = 0
) -> Path:
    """Write the files of :func:`write_imagenet` and ImageNet-LT's three lists; return the ``imagenet`` folder.

    Args:
        folder: The data folder.
        classes: The number of classes.
        train: Training images of the first class; the last class has one.
        validation: Validation images per class, taken from the training images that are left.
        test: Images per class in ``val``.
        seed: Seed of the images.
    """
    root = write_imagenet(folder, classes, train + validation, test, seed)
    lines: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for label, synset in enumerate(_synsets(classes)):
        images = [path.name for path in sorted((root / "train" / synset).iterdir())]
        count = round(train ** (1 - label / max(classes - 1, 1)))
        lines["train"] += [f"train/{synset}/{name} {label}" for name in images[validation:][:count]]
        lines["val"] += [f"train/{synset}/{name} {label}" for name in images[:validation]]
        tested = sorted((root / "val" / synset).iterdir())
        lines["test"] += [f"val/{synset}/{path.name} {label}" for path in tested]
    for part, listed in lines.items():
        (root / f"ImageNet_LT_{part}.txt").write_text("\n".join(listed) + "\n")
    return root


def write_plantnet300k(
    folder: Path, species: int = 4, train: int = 8, validation: int = 2, test: int = 2, seed: int = 0
) -> Path:
    """Write ``plantnet_300K`` with its folders and metadata, and return that folder.

    Args:
        folder: The data folder.
        species: The number of species, with ids as in the original.
        train: Training images of the first species; the last species has one.
        validation: Images per species in ``images_val``.
        test: Images per species in ``images_test``.
        seed: Seed of the images.
    """
    root, painter = folder / "plantnet_300K", Painter(species, seed)
    metadata: dict[str, dict[str, str]] = {}
    for label in range(species):
        identity = str(1355868 + 989 * label)
        count = round(train ** (1 - label / max(species - 1, 1)))
        for split, images in (("train", count), ("val", validation), ("test", test)):
            for _ in range(images):
                name = painter.generator.bytes(20).hex()
                painter.write(root / f"images_{split}" / identity / f"{name}.jpg", label)
                metadata[name] = {
                    "species_id": identity,
                    "obs_id": str(len(metadata) + 1000000),
                    "organ": "flower",
                    "author": "nobody",
                    "license": "cc-by-sa",
                    "split": split,
                }
    (root / "plantnet300K_metadata.json").write_text(json.dumps(metadata))
    names = {entry["species_id"]: f"Planta {entry['species_id']}" for entry in metadata.values()}
    (root / "plantnet300K_species_id_2_name.json").write_text(json.dumps(names))
    return root


def write_inaturalist_lists(
    folder: Path, year: int = 2018, classes: int = 4, train: int = 8, test: int = 3, seed: int = 0
) -> Path:
    """Write ``inaturalist2018``, or another year's folder, with its images and two lists; return that folder.

    Args:
        folder: The data folder.
        year: 2017, 2018 or 2019; 2017 has different folder names.
        classes: The number of classes, in up to three super categories.
        train: Training images of the first class; the last class has two.
        test: Images per class in the validation list.
        seed: Seed of the images.
    """
    root, painter = folder / f"inaturalist{year}", Painter(classes, seed)
    images = "train_val_images" if year == 2017 else f"train_val{year}"
    content = {part: _coco(year, classes) for part in ("train", "val")}
    for label in range(classes):
        location = f"{images}/{_kingdom(label)}/{f'Genus species{label}' if year == 2017 else label}"
        count = round(2 * (train / 2) ** (1 - label / max(classes - 1, 1)))
        for part, number in (("train", count), ("val", test)):
            for _ in range(number):
                name = f"{location}/{painter.generator.bytes(16).hex()}.jpg"
                painter.write(root / name, label)
                identity = 1 + sum(len(lists["images"]) for lists in content.values())
                content[part]["images"].append({"id": identity, "file_name": name, "license": 1})
                annotation = {"id": identity, "image_id": identity, "category_id": label}
                content[part]["annotations"].append(annotation)
    for part, lists in content.items():
        (root / f"{part}{year}.json").write_text(json.dumps(lists))
    return root


def _coco(year: int, classes: int) -> dict[str, Any]:
    categories = [
        {"id": label, "name": f"Genus species{label}", "supercategory": _kingdom(label)}
        for label in range(classes)
    ]
    return {"info": {"year": year}, "images": [], "annotations": [], "categories": categories}


def _kingdom(label: int) -> str:
    return ("Plantae", "Aves", "Fungi")[label % 3]
