"""Images that stay in their files until a batch wants them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from topk_platform.data.decoding import crop, decoders, pool, scaled
from topk_platform.data.listing import FileList
from topk_platform.specs.checks import check

__all__ = ["Images"]

_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
_TASK = 4  # images that a thread takes at once
_AHEAD = 16  # images that each thread may be ahead of the batch that is waited for
_SCORED = 2**24  # bytes of the images that are scored at once


@dataclass(frozen=True, eq=False)
class Images:
    """What a split holds instead of a tensor: files, decoded ahead of the batches that they are for.

    An image is scaled so that its shorter side is ``resize``, of which a square of ``size`` is taken: the middle,
    or a place of its own. Batches are the same whatever the number of threads.

    Args:
        files: All the dataset's files of which these are some.
        rows: Which ones, int64 ``(n,)``.
        size: Height and width of what comes out.
        resize: The shorter side of what it is taken from.
        device: Where batches go.
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
        """``(n, 3, size, size)``, as a tensor would have it."""
        return torch.Size((len(self), 3, self.size, self.size))

    @property
    def dtype(self) -> torch.dtype:
        """Bytes."""
        return torch.uint8

    @property
    def names(self) -> list[bytes]:
        """The files' paths from the dataset's folder."""
        names: list[bytes] = self.files.names[self.rows.numpy()].tolist()
        return names

    @property
    def description(self) -> bytes:
        """What the images are known by: names and sizes of the files, not their pixels."""
        sizes = self.files.sizes[self.rows.numpy()].tolist()
        return "\n".join(f"{name!r} {size}" for name, size in zip(self.names, sizes, strict=True)).encode()

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        """ImageNet's mean and deviation of each channel, ``(3, 1, 1)``, which pretrained networks expect as well."""
        return torch.tensor(_MEAN)[:, None, None], torch.tensor(_STD)[:, None, None]

    def __getitem__(self, indices: Tensor) -> Images:
        return replace(self, rows=self.rows[indices.cpu()])

    def to(self, device: str) -> Images:
        """Return the images with their batches on ``device``; the files stay where they are."""
        return replace(self, device=device)

    def in_order(self, place: tuple[float, float] | None = None) -> Iterator[Tensor]:
        """Return all images, in batches of about 16 MiB.

        Args:
            place: Where the squares are taken, as in :meth:`stream`.
        """
        rows = torch.split(torch.arange(len(self)), max(_SCORED // (3 * self.size**2), 1))
        places = None if place is None else [torch.tensor(place).expand(len(part), 2) for part in rows]
        return self.stream(rows, places)

    def stream(self, batches: Iterable[Tensor], places: Iterable[Tensor] | None = None) -> Iterator[Tensor]:
        """Return batches, uint8 ``(n, 3, size, size)`` on the device, some of them decoded ahead.

        Args:
            batches: Of each, which of the images, int64 ``(n,)`` on the CPU.
            places: Of each, where the squares are taken, ``(n, 2)`` in ``[0, 1)`` from the top and from the left;
                None for the middle.

        Raises:
            UnreadableImageError: naming the file, when its batch's turn has come.
        """
        waiting: deque[tuple[Tensor, list[Future[None]]]] = deque()
        try:
            for chosen, corners in zip(batches, repeat(None) if places is None else places, strict=False):
                waiting.append(self._start(chosen, corners))
                if len(waiting) > 1 + -(-_AHEAD * decoders() // max(len(chosen), 1)):
                    yield self._finished(*waiting.popleft())
            while waiting:
                yield self._finished(*waiting.popleft())
        finally:  # an epoch that is broken off leaves no work behind
            for _, tasks in waiting:
                for task in tasks:
                    task.cancel()

    def _start(self, chosen: Tensor, corners: Tensor | None) -> tuple[Tensor, list[Future[None]]]:
        rows = self.rows[chosen].tolist()
        places: Sequence[Any] = [None] * len(rows) if corners is None else corners.tolist()
        # Pinned memory, which torch hands out again only once the copy to the device is over.
        shape = (len(rows), self.size, self.size, 3)
        batch = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device == "cuda")
        parts = [slice(start, start + _TASK) for start in range(0, len(rows), _TASK)]
        return batch, [pool().submit(self._fill, batch[part], rows[part], places[part]) for part in parts]

    def _fill(self, batch: Tensor, rows: Sequence[int], places: Sequence[Any]) -> None:
        pixels = batch.numpy()
        for target, row, place in zip(pixels, rows, places, strict=True):
            target[...] = crop(scaled(self.files.path(row), self.resize), self.size, place)

    def _finished(self, batch: Tensor, tasks: list[Future[None]]) -> Tensor:
        for task in tasks:
            task.result()
        return batch.to(self.device, non_blocking=True).permute(0, 3, 1, 2).contiguous()
