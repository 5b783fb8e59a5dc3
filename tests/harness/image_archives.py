"""Image files that only tests write: the archives of ImageNet, and folders of classes as of iNaturalist."""

from __future__ import annotations

import hashlib
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from topk_platform.testing.standins import Painter

_ARCHIVES = {
    "train": "ILSVRC2012_img_train.tar",
    "val": "ILSVRC2012_img_val.tar",
    "devkit": "ILSVRC2012_devkit_t12.tar.gz",
}


def archive_imagenet(source: Path, target: Path) -> dict[str, tuple[str, str]]:
    """Write ImageNet's three archives, in the original format, from the files of ``write_imagenet``.

    Args:
        source: The ``imagenet`` folder.
        target: The folder for the archives.

    Returns:
        Name and md5 of the archives ``"train"``, ``"val"`` and ``"devkit"``.
    """
    target.mkdir(parents=True, exist_ok=True)
    synsets = sorted(path.name for path in (source / "train").iterdir())
    tested = sorted(
        (path.name, label) for label, s in enumerate(synsets) for path in (source / "val" / s).iterdir()
    )
    with tarfile.open(target / _ARCHIVES["train"], "w") as tar:
        for synset in synsets:
            _add(tar, f"{synset}.tar", _tarred(source / "train" / synset))
    with tarfile.open(target / _ARCHIVES["val"], "w") as tar:
        for name, label in tested:
            _add(tar, name, (source / "val" / synsets[label] / name).read_bytes())
    with tarfile.open(target / _ARCHIVES["devkit"], "w:gz") as tar:
        data = "ILSVRC2012_devkit_t12/data"
        _add(tar, f"{data}/meta.mat", _meta(synsets))
        truth = "".join(f"{label + 1}\n" for _, label in tested)
        _add(tar, f"{data}/ILSVRC2012_validation_ground_truth.txt", truth.encode())
    return {
        kind: (name, hashlib.md5((target / name).read_bytes()).hexdigest())  # noqa: S324 - as torchvision checks it
        for kind, name in _ARCHIVES.items()
    }


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, BytesIO(content))


def _tarred(folder: Path) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            _add(tar, path.name, path.read_bytes())
    return buffer.getvalue()


def _meta(synsets: list[str]) -> bytes:
    """Return the developers' kit's table of synsets: the reader needs their numbers, ids, words and child counts."""
    from scipy.io import savemat

    names = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")
    rows = [(label + 1, synset, f"thing {label}", "a thing", 0) for label, synset in enumerate(synsets)]
    buffer: Any = BytesIO()  # savemat accepts it, although its type stubs do not
    savemat(buffer, {"synsets": np.array(rows, dtype=[(name, object) for name in names])[:, None]})
    written: bytes = buffer.getvalue()
    return written


def write_inaturalist(folder: Path, classes: int = 4, train: int = 10, test: int = 3, seed: int = 0) -> Path:
    """Write ``inaturalist`` with ``train`` and ``test`` and classes named as in iNaturalist 2021; return that folder.

    Args:
        folder: The data folder.
        classes: The number of classes.
        train: Training images of the first class; the last class has four, enough to hold some out.
        test: Images per class in ``test``.
        seed: Seed of the images.
    """
    root, painter = folder / "inaturalist", Painter(classes, seed)
    for label in range(classes):
        name = f"{label:05}_Plantae_Tracheophyta_Magnoliopsida_Fabales_Fabaceae_Planta_{'abcdefghij'[label % 10]}"
        count = round(4 * (train / 4) ** (1 - label / max(classes - 1, 1)))
        for split, images in (("train", count), ("test", test)):
            for number in range(images):
                painter.write(root / split / name / f"{label:04}-{split}-{number:04}.jpg", label)
    return root
