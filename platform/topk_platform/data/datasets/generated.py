"""Data that are drawn: points of six classes around a circle, and images for tests, benchmarks and smoke runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from topk_platform.data.dataset import Dataset, Split
from topk_platform.specs.checks import check
from topk_platform.specs.codec import hashed

__all__ = ["ring", "synthetic_images"]


def ring(
    generator: Generator,
    sigma: float = 10.0,
    distance: float = 0.0,
    per_class: int = 300,
    classes: int = 6,
) -> Dataset:
    """Return points on the unit circle, float32 ``(n, 2)``, drawn around equally spaced centres.

    A point of class c has the angle ``360° · c / classes + σZ``, where Z is standard normal. With a ``distance``, one
    point in three of every class belongs to a minor mode: the distance is added to its angle. The training, validation
    and test splits are drawn from the same distribution. In a study every seed has its own splits.

    Args:
        generator: The source of randomness.
        sigma: Standard deviation σ of the angle in degrees; 10 to 30 in the paper's experiment 1, 10 in 2 and 3.
        distance: Distance of the minor mode from the major mode in degrees, 0 for no minor mode; 30 to 90 in experiment
            2, 90 in 3.
        per_class: Points of each class in each split.
        classes: Number of classes.

    Raises:
        ValueError: if ``sigma`` is negative or infinite, ``distance`` is not finite, or a number of points or classes
            is below 1.

    Source:
        Sawada et al., Trade-offs in Top-k Classification Accuracies on Losses for Deep Learning, 2020, section IV.

    Example:
        >>> data = ring(Generator().manual_seed(0), sigma=20)
        >>> len(data.train), len(data.validation), len(data.test), data.shape
        (1800, 1800, 1800, (2,))
    """
    check(0 <= sigma < math.inf, f"sigma must be at least 0 degrees, got {sigma!r}")
    check(math.isfinite(distance), f"distance must be a number of degrees, got {distance!r}")
    check(per_class >= 1, f"per_class must be at least 1, got {per_class!r}")
    check(classes >= 1, f"classes must be at least 1, got {classes!r}")

    def split() -> Split:
        labels = torch.arange(classes).repeat_interleave(per_class)
        centres = labels.double() * (360 / classes)
        noise = torch.randn(len(labels), generator=generator, dtype=torch.float64)
        minor = torch.arange(per_class).repeat(classes) % 3 == 0
        angle = torch.deg2rad(centres + sigma * noise + distance * minor)
        return Split(torch.stack([angle.cos(), angle.sin()], dim=1).float(), labels)

    return Dataset(split(), split(), split(), classes=classes)


_GRID = 8  # cells along each side of a pattern
_SIGNAL = 32  # grey levels of a fine class's pattern at difficulty 0; its superclass has twice as much
_SHIFT = 4  # pixels that an image may be moved by, in each direction
_CHUNK = 4096


def synthetic_images(
    classes: int = 100,
    superclasses: int = 20,
    train: int = 450,
    validation: int = 50,
    test: int = 100,
    size: int = 32,
    difficulty: float = 0.5,
    seed: int = 0,
) -> Dataset:
    """Return RGB images, uint8 ``(n, 3, size, size)``, of fine classes grouped into superclasses.

    Each superclass and each class has a random coloured pattern on a coarse grid. An image is the sum of the pattern of
    its superclass and, at half the strength, the pattern of its class, both scaled by ``1 - difficulty``. Noise of a
    fixed strength is added to each cell of the grid, and weaker noise to each pixel. The image is shifted by up to four
    pixels in each direction and mirrored with probability 1/2. Classes of the same superclass are therefore confused
    most easily, which makes top-K accuracy differ from top-1. By default sizes and splits are those of CIFAR-100.
    Class c belongs to superclass ``c % superclasses``.

    All arithmetic is on integers, so the same arguments give the same bytes and the same fingerprint on every machine.

    Args:
        classes: Fine classes.
        superclasses: Number of superclasses.
        train: Training images of each class.
        validation: Validation images of each class.
        test: Test images of each class.
        size: Height and width in pixels, a multiple of 8.
        difficulty: In ``[0, 1]``. At 0 a small network classifies nearly all images correctly; at 1 there is nothing
            to learn.
        seed: Another seed gives another dataset of the same kind.

    Raises:
        ValueError: if an argument is out of its range.

    Example:
        >>> data = synthetic_images(classes=10, superclasses=5, train=8, validation=2, test=2)
        >>> data.shape, data.train.inputs.dtype, len(data.train), data.superclasses
        ((3, 32, 32), torch.uint8, 80, (0, 1, 2, 3, 4, 0, 1, 2, 3, 4))
    """
    _check_sizes(classes, superclasses, size, train=train, validation=validation, test=test)
    check(0 <= difficulty <= 1, f"difficulty must be in [0, 1], got {difficulty!r}")
    of_class = torch.arange(classes) % superclasses
    draw = _generator(seed, "patterns")
    coarse, fine = _signs(superclasses, draw), _signs(classes, draw)
    strength = round(16 * _SIGNAL * (1 - difficulty))  # in sixteenths of a grey level
    painter = _Painter((2 * coarse[of_class] + fine) * strength, size)

    def split(role: str, count: int) -> Split:
        return painter.paint(torch.arange(classes).repeat_interleave(count), _generator(seed, role))

    return Dataset(
        train=split("train", train),
        validation=split("validation", validation),
        test=split("test", test),
        classes=classes,
        superclasses=tuple(of_class.tolist()),
    )


def _check_sizes(classes: int, superclasses: int, size: int, **per_class: int) -> None:
    check(
        1 <= superclasses <= classes,
        f"superclasses must be in [1, classes = {classes}], got {superclasses!r}",
    )
    check(size >= _GRID and size % _GRID == 0, f"size must be a multiple of {_GRID}, got {size!r}")
    for name, count in per_class.items():
        check(count >= 1, f"{name} must be at least 1 image of each class, got {count!r}")


def _generator(seed: int, role: str) -> Generator:
    return Generator().manual_seed(hashed("synthetic_images", seed, 0, role))


def _signs(count: int, generator: Generator) -> Tensor:
    bits = torch.randint(0, 2, (count, 3, _GRID, _GRID), generator=generator, dtype=torch.int16)
    return 2 * bits - 1


@dataclass(frozen=True)
class _Painter:
    """A renderer of random images of given classes.

    Args:
        patterns: The pattern of each class, in sixteenths of a grey level, int16 ``(classes, 3, 8, 8)``.
        size: Height and width of the images in pixels.
    """

    patterns: Tensor
    size: int

    def paint(self, labels: Tensor, generator: Generator) -> Split:
        """Return an image for each label."""
        images = torch.empty((len(labels), 3, self.size, self.size), dtype=torch.uint8)
        for start in range(0, len(labels), _CHUNK):
            rows = slice(start, start + _CHUNK)
            images[rows] = self._images(labels[rows], generator)
        return Split(images, labels)

    def _images(self, labels: Tensor, generator: Generator) -> Tensor:
        cells = 128 + (self.patterns[labels] + 16 * self._noise(len(labels), generator)) // 16
        rows = self._shifted_cells(len(labels), generator)
        columns = self._shifted_cells(len(labels), generator)
        mirrored = torch.randint(0, 2, (len(labels), 1), generator=generator) == 1
        columns = torch.where(mirrored, columns.flip(1), columns)
        pixels = cells.gather(2, _spread(rows[:, None, :, None], (3, self.size, _GRID)))
        pixels = pixels.gather(3, _spread(columns[:, None, None, :], (3, self.size, self.size)))
        return (pixels + self._grain(pixels.shape, generator)).clamp_(0, 255).to(torch.uint8)

    @staticmethod
    def _noise(count: int, generator: Generator) -> Tensor:
        """Return roughly normal noise with a standard deviation of 37 grey levels: a sum of four uniform variables."""
        draws = [
            torch.randint(0, 64, (count, 3, _GRID, _GRID), generator=generator, dtype=torch.int16)
            for _ in range(4)
        ]
        return draws[0] + draws[1] + draws[2] + draws[3] - 126

    def _shifted_cells(self, count: int, generator: Generator) -> Tensor:
        """Return the grid cell of each pixel along one axis of randomly shifted images, ``(count, size)``."""
        shift = torch.randint(-_SHIFT, _SHIFT + 1, (count, 1), generator=generator)
        return (torch.arange(self.size) + shift) % self.size * _GRID // self.size

    @staticmethod
    def _grain(shape: torch.Size, generator: Generator) -> Tensor:
        """Return noise that is uniform on -16, ..., 15. Each 64-bit draw gives the noise of eight pixels."""
        draws = torch.empty(-(-shape.numel() // 8), dtype=torch.int64)
        draws.random_(-(2**63), None, generator=generator)
        return (draws.view(torch.uint8)[: shape.numel()] % 32).to(torch.int16).view(shape) - 16


def _spread(indices: Tensor, shape: tuple[int, ...]) -> Tensor:
    return indices.expand(len(indices), *shape)
