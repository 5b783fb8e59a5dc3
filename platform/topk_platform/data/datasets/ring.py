"""Six classes around a circle, as in sawada2020's experiments on synthetic data."""

from __future__ import annotations

import math

import torch
from torch import Generator

from topk_platform.data.dataset import Dataset, Split
from topk_platform.specs.checks import check

__all__ = ["ring"]


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
