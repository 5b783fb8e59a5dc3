"""Features of photos, computed once by a frozen backbone and kept on disk by what each photo shows."""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.folders import cache_folder, write_whole
from topk_platform.data.images.backbones import Backbone
from topk_platform.data.images.contents import contents
from topk_platform.data.images.copies import notes_on_features
from topk_platform.data.images.decoding import cores
from topk_platform.data.images.in_files import DECODING_VERSION, Images
from topk_platform.errors import UserError

__all__ = ["features_of"]

_BATCH = 64
_SECONDS = 10.0  # seconds between two lines of progress
_VERSION = f"bicubic-1 torch-{torch.__version__.partition('+')[0]}"  # part of the cache's folder names


def features_of(dataset: Dataset, backbone: Backbone, name: str = "dataset") -> Dataset:
    """Return a dataset whose inputs are the features of another dataset's images, float32 ``(n, d)``.

    The features are kept in :func:`~topk_platform.data.folders.cache_folder`, in a folder for each combination of the
    backbone's weights, its preprocessing and the images' size. A photo is known by its content, wherever its file is:
    if photos are added, only theirs are computed, and the file of the photos before is replaced. If several processes
    need the same features, the first computes them and the others wait. Features are rounded to float16, in the file
    and in the returned dataset.

    Args:
        dataset: The images.
        backbone: The frozen network.
        name: The dataset's name in the lines of progress.

    Raises:
        UserError: if the inputs are not colour images, the backbone does not return finite features ``(n, d)`` in
            float16's range, the GPU has too little free memory, or the features cannot be written.
    """
    images = dataset.train.inputs
    if images.dtype != torch.uint8 or dataset.shape[0] != 3:
        raise UserError(
            f"dataset {name}: a backbone takes uint8 images (n, 3, height, width), got {images.dtype} "
            f"(n, {', '.join(map(str, dataset.shape))})"
        )
    read = f" {DECODING_VERSION} {images.resize}" if isinstance(images, Images) else ""
    folder = (
        cache_folder()
        / "features"
        / _hash(f"{backbone.identity()} {_VERSION} {dataset.shape}{read}".encode())
    )
    held = {part: contents(split.inputs) for part, split in dataset.splits.items()}
    every = sorted({*chain.from_iterable(held.values())})
    file = folder / f"{_hash(*every)}.safetensors"
    features = _read(file, "features")
    if features is None:
        with _alone(folder):
            features = _read(file, "features")
            if features is None:
                features = _made(file, every, held, dataset, backbone, name)
    row = {content: number for number, content in enumerate(every)}
    first = {part: features[[row[each] for each in of]] for part, of in held.items()}
    labels = torch.cat([split.labels for split in dataset.splits.values()]).numpy().tobytes()
    listed = folder / f"{file.stem}.{_hash(*chain.from_iterable(held.values()), labels)}.csv"
    notes = notes_on_features(dataset, first, listed)
    return replace(
        dataset,
        train=replace(dataset.train, inputs=first["train"].float()),
        validation=replace(dataset.validation, inputs=first["validation"].float()),
        test=replace(dataset.test, inputs=first["test"].float()),
        notes=(*dataset.notes, *notes),
        names=dataset.class_names or None,  # of images in files, the names are those of their folders
    )


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:32]


def _made(
    file: Path,
    every: Sequence[bytes],
    held: Mapping[str, Sequence[bytes]],
    dataset: Dataset,
    backbone: Backbone,
    name: str,
) -> Tensor:
    """Return the features of all photos: those that earlier files hold, and the others, which are computed; keep them.

    Effect: earlier files of at least half the same photos are deleted.
    """
    row = {content: number for number, content in enumerate(every)}
    parts: list[Tensor] = []
    known: dict[bytes, None] = {}  # the photos whose features are in the parts, in that order
    earlier = {old: _contents_in(old) for old in file.parent.glob("*.safetensors")}
    for old, before in earlier.items():
        wanted = row.keys() - known
        kept = {content: number for number, content in enumerate(before) if content in wanted}
        if kept and (features := _read(old, "features")) is not None:
            parts.append(features[[*kept.values()]])
            known |= dict.fromkeys(kept)
    for part, split in dataset.splits.items():
        missing = {content: number for number, content in enumerate(held[part]) if content not in known}
        if missing:
            parts.append(
                _computed(split.take(torch.tensor([*missing.values()])), backbone, f"{name}, {part}")
            )
            known |= dict.fromkeys(missing)
    result = torch.cat(parts)[torch.tensor([row[content] for content in known]).argsort()]
    _write(file, every, result)
    for old, before in earlier.items():
        if old != file and 2 * sum(content in row for content in before) >= len(before):
            for each in old.parent.glob(f"{old.stem}.*"):
                each.unlink(missing_ok=True)
    return result


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire()
    except OSError as error:
        raise UserError(
            f"features cannot be kept in {folder.parent}: {error}. Name a folder that can be written to with TOPK_CACHE"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _read(file: Path, name: str) -> Tensor | None:
    """Return a tensor of a kept file; None if there is no file, or it is incomplete and must be made again."""
    try:
        with safe_open(file, "pt") as content:
            tensor: Tensor = content.get_tensor(name)
    except (SafetensorError, OSError):
        return None
    return tensor


def _contents_in(file: Path) -> list[bytes]:
    contents = _read(file, "contents")
    return [] if contents is None else [bytes(row) for row in contents.numpy()]


def _write(file: Path, every: Sequence[bytes], features: Tensor) -> None:
    contents = torch.frombuffer(bytearray(b"".join(every)), dtype=torch.uint8).view(len(every), -1)
    whole = save({"contents": contents, "features": features})
    try:
        write_whole(file, lambda kept: kept.write(whole))
    except OSError as error:
        free = shutil.disk_usage(file.parent).free
        raise UserError(
            f"{features.nbytes / 1e6:.0f} MB of features cannot be kept in {file.parent.parent}, which has "
            f"{free / 1e6:.0f} MB free: {error}. Name another folder with TOPK_CACHE"
        ) from error


def _computed(split: Split, backbone: Backbone, what: str) -> Tensor:
    """Return the features of a split's images, float16 ``(n, d)``.

    Every batch has the same size, because libraries round otherwise where it differs: the features of a photo must not
    depend on which others are computed with it.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backbone = backbone.to(device)
    rows = torch.split(torch.arange(len(split)), _BATCH)
    images = split.inputs
    batches = images.stream(rows) if isinstance(images, Images) else (images[part] for part in rows)
    parts = []
    with torch.inference_mode(), _all_cores(), _enough_memory(backbone):
        for batch in _with_progress(batches, what, len(split)):
            full = batch[torch.arange(_BATCH) % len(batch)]
            parts.append(_features(backbone, full.to(device))[: len(batch)])
    return torch.cat(parts)


@contextmanager
def _enough_memory(backbone: Backbone) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"a backbone at {backbone.pixels} pixels needs more memory than the GPU has free for {_BATCH} images: take "
            "fewer pixels, or the CPU with CUDA_VISIBLE_DEVICES="
        ) from error


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
    torch.set_num_threads(cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _with_progress(batches: Iterable[Tensor], what: str, total: int) -> Iterator[Tensor]:
    """Yield batches; lines on standard error say how many of all images are done and how long the others will take."""
    began = last = time.monotonic()
    done = 0
    for batch in batches:
        yield batch
        done, now = done + len(batch), time.monotonic()
        if now - last >= _SECONDS:
            last, left = now, (now - began) * (total - done) / done
            sys.stderr.write(
                f"features of {what}: {done:,} of {total:,} images, about {left / 60:.1f} min left\n"
            )
