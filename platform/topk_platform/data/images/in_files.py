"""Images that stay in their files until a batch needs them; scaled pixels are kept where the user names a folder."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topk_platform.data.folders import pixel_folder, write_whole
from topk_platform.data.images.decoding import (
    Pixels,
    UnreadableImageError,
    crop,
    decoded,
    decoders,
    pool,
)
from topk_platform.data.images.listing import FileList
from topk_platform.specs.checks import check

__all__ = ["DECODING_VERSION", "Images", "scaled"]

_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
_TASK = 4  # images that a thread takes at once
_AHEAD = 16  # images that each thread may decode ahead of the current batch
_SCORED = 2**24  # bytes of a batch in scoring


@dataclass(frozen=True, eq=False)
class Images:
    """The inputs of a split whose images stay in files and are decoded some batches ahead.

    An image is scaled so that its shorter side is ``resize``; then a square of side ``size`` is cropped from it, in the
    middle or at a position given for each image. The number of threads does not change the batches.

    Args:
        files: The list of all files, to which the images belong.
        rows: The images' rows in that list, int64 ``(n,)``.
        size: Height and width of the cropped square.
        resize: The shorter side of the scaled image from which the square is cropped.
        device: The device of the batches.

    Raises:
        UserError: if ``size`` is below 1 or ``resize`` is below ``size``.
    """

    files: FileList
    rows: Tensor
    size: int
    resize: int
    device: str = "cpu"

    def __post_init__(self) -> None:
        check(self.size >= 1, f"size must be at least 1 pixel, got {self.size!r}")
        check(self.resize >= self.size, f"resize must be at least size = {self.size}, got {self.resize!r}")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> torch.Size:
        """``(n, 3, size, size)``, the shape of a tensor of the same images."""
        return torch.Size((len(self), 3, self.size, self.size))

    @property
    def dtype(self) -> torch.dtype:
        """``torch.uint8``."""
        return torch.uint8

    @property
    def names(self) -> list[bytes]:
        """The files' paths relative to the dataset's folder."""
        names: list[bytes] = self.files.names[self.rows.numpy()].tolist()
        return names

    @property
    def description(self) -> bytes:
        """The bytes that identify the images in a fingerprint: names and sizes of the files, not their pixels."""
        sizes = self.files.sizes[self.rows.numpy()].tolist()
        return "\n".join(f"{name!r} {size}" for name, size in zip(self.names, sizes, strict=True)).encode()

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        """ImageNet's mean and standard deviation of each channel, ``(3, 1, 1)``; pretrained networks expect them."""
        return torch.tensor(_MEAN)[:, None, None], torch.tensor(_STD)[:, None, None]

    def __getitem__(self, indices: Tensor) -> Images:
        return replace(self, rows=self.rows[indices.cpu()])

    def to(self, device: str) -> Images:
        """Return the images with their batches on ``device``; the files stay where they are."""
        return replace(self, device=device)

    def in_order(self, position: tuple[float, float] | None = None) -> Iterator[Tensor]:
        """Yield all images, in batches of about 16 MiB.

        Args:
            position: The position of the squares, as in :meth:`stream`.
        """
        rows = torch.split(torch.arange(len(self)), max(_SCORED // (3 * self.size**2), 1))
        positions = (
            None if position is None else [torch.tensor(position).expand(len(part), 2) for part in rows]
        )
        return self.stream(rows, positions)

    def stream(
        self, batches: Iterable[Tensor], positions: Iterable[Tensor] | None = None
    ) -> Iterator[Tensor]:
        """Yield batches, uint8 ``(n, 3, size, size)`` on the device; some later batches are decoded ahead.

        Args:
            batches: The rows of each batch's images, int64 ``(n,)`` on the CPU.
            positions: The positions of each batch's squares, ``(n, 2)`` in ``[0, 1)`` from the top and from the left;
                None for the middle.

        Raises:
            UnreadableImageError: if an image cannot be read. The error names the file, and is raised when the image's
                batch is due.
        """
        waiting: deque[tuple[Tensor, list[Future[None]]]] = deque()
        try:
            for chosen, corners in zip(
                batches, repeat(None) if positions is None else positions, strict=False
            ):
                waiting.append(self._start(chosen, corners))
                if len(waiting) > 1 + -(-_AHEAD * decoders() // max(len(chosen), 1)):
                    yield self._finished(*waiting.popleft())
            while waiting:
                yield self._finished(*waiting.popleft())
        finally:  # an interrupted epoch leaves no work behind
            for _, tasks in waiting:
                for task in tasks:
                    task.cancel()

    def _start(self, chosen: Tensor, corners: Tensor | None) -> tuple[Tensor, list[Future[None]]]:
        rows = self.rows[chosen].tolist()
        positions: Sequence[Any] = [None] * len(rows) if corners is None else corners.tolist()
        # Pinned memory is safe here, because torch reuses it only after the copy to the device has ended.
        shape = (len(rows), self.size, self.size, 3)
        batch = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device == "cuda")
        parts = [slice(start, start + _TASK) for start in range(0, len(rows), _TASK)]
        return batch, [pool().submit(self._fill, batch[part], rows[part], positions[part]) for part in parts]

    def _fill(self, batch: Tensor, rows: Sequence[int], positions: Sequence[Any]) -> None:
        pixels = batch.numpy()
        for target, row, position in zip(pixels, rows, positions, strict=True):
            target[...] = crop(scaled(self.files.path(row), self.resize), self.size, position)

    def _finished(self, batch: Tensor, tasks: list[Future[None]]) -> Tensor:
        for task in tasks:
            task.result()
        return batch.to(self.device, non_blocking=True).permute(0, 3, 1, 2).contiguous()


DECODING_VERSION = "shown-3"  # part of the cache's file names; change it whenever the decoding changes


_FREE_FRACTION = 0.05  # the fraction of the disk that kept pixels leave free


def scaled(path: Path, resize: int) -> Pixels:
    """Return an image in RGB, scaled so that its shorter side is ``resize``: uint8 ``(height, width, 3)``.

    The image is as a viewer shows it: see :func:`~topk_platform.data.images.decoding.appearance`.

    If ``TOPK_CACHE`` names a folder, the pixels are stored there, and any process reads them from there the next time.
    Nothing more is stored once less than a twentieth of that disk is free. If the folder cannot be written to, a
    warning says so.

    Args:
        path: The image, in any format that Pillow reads.
        resize: Pixels of the shorter side; the length of the longer side is rounded down.

    Raises:
        UnreadableImageError: if the image cannot be read to its end, or is so narrow that it has too many pixels when
            it is scaled.
    """
    folder = pixel_folder()
    if folder is None:
        return decoded(path, resize)
    cached = _cache_file(folder, path, resize)
    pixels = _read_cached(cached)
    if pixels is None:
        pixels = decoded(path, resize)
        _write_cached(folder, cached, pixels)
    return pixels


def _cache_file(folder: Path, path: Path, resize: int) -> Path:
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableImageError(f"image {path} is no longer there") from error
    text = f"{DECODING_VERSION}\0{path}\0{status.st_size}\0{status.st_mtime_ns}\0{resize}"
    name = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return folder / name[:3] / name[3:]


def _read_cached(path: Path) -> Pixels | None:
    """Return memory-mapped pixels, so that only the pixels of the crop are read; None if they are not in the cache."""
    try:
        pixels: Pixels = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):  # there is no file, or a crash has left a part or nothing of it
        return None
    return pixels


def _write_cached(folder: Path, path: Path, pixels: Pixels) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        disk = shutil.disk_usage(folder)
        if disk.free - pixels.nbytes >= _FREE_FRACTION * disk.total:
            write_whole(path, lambda file: np.save(file, pixels))
    except OSError as error:  # its strerror lacks the image's name, so that Python shows the warning once
        warnings.warn(
            f"scaled images cannot be kept in {folder}, so each is decoded whenever it is needed: {error.strerror}. "
            "Name another folder with TOPK_CACHE",
            stacklevel=2,
        )
