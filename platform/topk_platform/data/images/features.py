"""Features of images, computed once by a frozen backbone and kept on disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from filelock import FileLock
from torch import Generator, Tensor

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.folders import cache_folder
from topk_platform.data.images.backbones import Backbone
from topk_platform.data.images.copies import notes_on_features
from topk_platform.errors import UserError
from topk_platform.specs.checks import check

__all__ = ["Progress", "features_of"]

_BATCH = 64
_SECONDS = 10.0  # seconds between two lines of progress


def features_of(dataset: Dataset, backbone: Backbone, name: str = "dataset", views: int = 1) -> Dataset:
    """Return a dataset whose inputs are the features of another dataset's images, float32 ``(n, d)``.

    The features are kept in :func:`~topk_platform.data.folders.cache_folder`, in one file for each combination of a
    split's images, the backbone's weights and its preprocessing. If several processes need the same features, the first
    computes them and the others wait. Features are rounded to float16, in the file and in the returned dataset.

    With V > 1 views the inputs are ``(n, V, d)``. The first view is the whole image. Each further view of a training
    image is a random square of 7/8 of the shorter side, flipped with probability 1/2; it is the same in every process.
    Validation and test images repeat their first view.

    Args:
        dataset: The images.
        backbone: The frozen network.
        name: The dataset's name in the lines of progress.
        views: V, the number of views of each training image.

    Raises:
        UserError: if the inputs are not colour images, the backbone does not return finite features ``(n, d)`` in
            float16's range, ``views`` is below 1, the GPU has too little free memory, or the features cannot be
            written.
    """
    check(views >= 1, f"views must be at least 1, got {views!r}")
    if dataset.train.inputs.dtype != torch.uint8 or dataset.shape[0] != 3:
        raise UserError(
            f"dataset {name}: a backbone takes uint8 images (n, 3, height, width), got {dataset.train.inputs.dtype} "
            f"(n, {', '.join(map(str, dataset.shape))})"
        )
    made = backbone.identity()
    first = {part: _kept(split, backbone, made, f"{name}, {part}") for part, split in dataset.splits.items()}
    key = hashlib.sha256(f"{dataset.fingerprint} {made} {_VERSION}".encode()).hexdigest()[:32]
    notes = notes_on_features(dataset, first, cache_folder() / "features" / f"{key}.csv")
    inputs = {part: features.float() for part, features in first.items()}
    if views > 1:
        more = [_kept(dataset.train, backbone, made, f"{name}, train", view) for view in range(1, views)]
        inputs = {part: features[:, None].repeat(1, views, 1) for part, features in inputs.items()}
        inputs["train"] = torch.stack([first["train"], *more], 1).float()
    return replace(
        dataset,
        train=replace(dataset.train, inputs=inputs["train"]),
        validation=replace(dataset.validation, inputs=inputs["validation"]),
        test=replace(dataset.test, inputs=inputs["test"]),
        notes=(*dataset.notes, *notes),
        names=dataset.class_names or None,  # of images in files, the names are those of their folders
    )


def _kept(split: Split, backbone: Backbone, made: str, what: str, view: int = 0) -> Tensor:
    """Return the features of a view of a split's images from the cache, or compute and keep them."""
    seen = f" view {view} {_VIEWS}" if view else ""
    key = hashlib.sha256(f"{split.fingerprint} {made} {_VERSION}{seen}".encode()).hexdigest()[:32]
    file = cache_folder() / "features" / f"{key}.safetensors"
    if (features := _read(file, len(split))) is not None:
        return features
    with _alone(file):
        if (features := _read(file, len(split))) is not None:
            return features
        features = _computed(split, backbone, f"{what}, view {view + 1}" if view else what, view)
        _write(file, features)
        return features


_VIEWS = "squares-1"  # part of the cache's file names; change it whenever the views change
_VERSION = f"bicubic-1 torch-{torch.__version__.partition('+')[0]}"  # also part of the cache's file names


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{file}.lock")
        lock.acquire()
    except OSError as error:
        raise UserError(
            f"features cannot be kept in {file.parent}: {error}. Name a folder that can be written to "
            "with TOPK_CACHE"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _read(file: Path, rows: int) -> Tensor | None:
    """Return features from the cache; None if there is no file, or the file is incomplete and must be made again."""
    from safetensors import SafetensorError  # noqa: PLC0415 - training without the platform does not need it
    from safetensors.torch import load_file  # noqa: PLC0415 - likewise

    if not file.is_file():
        return None
    try:
        features: Tensor = load_file(file)["features"]
    except (SafetensorError, KeyError, OSError):
        return None
    return features if len(features) == rows else None


def _write(file: Path, features: Tensor) -> None:
    from safetensors.torch import save  # noqa: PLC0415 - as above

    part = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        part.write_bytes(
            save({"features": features})
        )  # with the folder's default permissions, so that other users' workers can read it
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        free = shutil.disk_usage(file.parent).free
        raise UserError(
            f"{features.nbytes / 1e6:.0f} MB of features cannot be kept in {file.parent}, which has "
            f"{free / 1e6:.0f} MB free: {error}. Name another folder with TOPK_CACHE"
        ) from error


def _computed(split: Split, backbone: Backbone, what: str, view: int) -> Tensor:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backbone = backbone.to(device)
    progress = Progress(what, len(split))
    generator = Generator().manual_seed(view)
    parts = []
    with torch.inference_mode(), _all_cores(), _room_on_the_gpu(backbone):
        for images in split.in_order(_BATCH):
            parts.append(_features(backbone, (_square(images, generator) if view else images).to(device)))
            progress.add(len(images))
    return torch.cat(parts)


@contextmanager
def _room_on_the_gpu(backbone: Backbone) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"a backbone at {backbone.pixels} pixels needs more memory than the GPU has free for {_BATCH} images: take "
            "fewer pixels, or the CPU with CUDA_VISIBLE_DEVICES="
        ) from error


def _square(images: Tensor, generator: Generator) -> Tensor:
    """Return a random square of each image ``(n, 3, height, width)``, some of them flipped."""
    count, _, height, width = images.shape
    side = max(min(height, width) * 7 // 8, 1)
    top, left = (
        (torch.rand(count, generator=generator) * (rest + 1)).long() for rest in (height - side, width - side)
    )
    flip = torch.rand(count, generator=generator) < 0.5
    steps = torch.arange(side)
    rows = top[:, None] + steps
    columns = left[:, None] + torch.where(flip[:, None], steps.flip(0), steps)
    others = torch.arange(count)[:, None, None, None], torch.arange(3)[:, None, None]
    return images[(*others, rows[:, None, :, None], columns[:, None, None, :])]


def _features(backbone: Backbone, images: Tensor) -> Tensor:
    features: Tensor = backbone(images).half()
    if features.ndim != 2 or len(features) != len(images) or not bool(features.isfinite().all()):
        raise UserError(
            f"a backbone must return features (n, d) of n = {len(images)} images, finite and within ±65,504, got "
            f"{tuple(features.shape)}"
        )
    return features.cpu().clone()


@contextmanager
def _all_cores() -> Iterator[None]:
    """Let torch use all cores in the block, because a worker's trials have only few threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Progress:
    """Lines on standard error that say how many images are done and how long the others will take.

    Args:
        what: The name of the split.
        total: The number of images.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._began = self._last = time.monotonic()

    def add(self, images: int) -> None:
        """Count images that are done."""
        self._done += images
        now = time.monotonic()
        if now - self._last < _SECONDS:
            return
        self._last = now
        left = (now - self._began) * (self._total - self._done) / self._done
        sys.stderr.write(
            f"features of {self._what}: {self._done:,} of {self._total:,} images, about {left / 60:.1f} min left\n"
        )
