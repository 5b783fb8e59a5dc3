"""Test images in plots: their dataset, their pixels, and tiles with an image and a name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from topk_platform.data import Dataset, load
from topk_platform.data.loading import feature_arguments
from topk_platform.errors import UserError
from topk_platform.reports.plots.drawing import as_they_are, frame
from topk_platform.reports.plots.plot_data import NothingToPlotError, UnsuitedStudyError
from topk_platform.reports.words import shortened, wrapped
from topk_platform.specs import FEATURES, Regime

__all__ = ["Pixels", "caption", "dataset_of_images", "pixels_of", "tile"]

Pixels = npt.NDArray[np.float64]
"""An image ``(height, width, 1 or 3)`` in [0, 1]."""

_PIXELS = 48  # images in a plot have no shorter side than this
_RIGHT = "#009E73"
_LETTERS = 9  # letters of a line below an image
_LINES = 3  # the most lines below an image; more would reach into the next row


def dataset_of_images(regime: Regime, images: str) -> Dataset:
    """Return the dataset on whose test images runs were tested; of features, the dataset of their images.

    Args:
        regime: The regime.
        images: The test split's fingerprint, as the runs recorded it.

    Raises:
        NothingToPlotError: if the images are not on this machine, or this machine has different images.
        UnsuitedStudyError: if the test samples are not images, or every seed draws its own test samples.
    """
    source = _read(regime)
    shown = _read(_of_images(regime)) if regime.dataset == FEATURES else source
    if len(shown.shape) != 3 or shown.shape[0] not in (1, 3):
        raise UnsuitedStudyError(
            "the inputs of the networks are not images; the plot confusion shows without images which classes are "
            "guessed for one another"
        )
    if source.test.fingerprint != images:
        raise NothingToPlotError("the test images on this machine are not those that the runs were tested on")
    return shown


def _read(regime: Regime) -> Dataset:
    try:
        source = load(regime)
    except UserError as error:
        raise NothingToPlotError(f"the test images cannot be read on this machine: {error}") from error
    if not isinstance(source, Dataset):
        raise UnsuitedStudyError("every seed draws test samples of its own, which are not kept")
    return source


def _of_images(regime: Regime) -> Regime:
    """Return a regime of features with the images themselves, which have the same splits in the same order."""
    given = feature_arguments(regime.options)
    return replace(regime, dataset=given["of"], options=given["options"])


def pixels_of(data: Dataset, images: Iterable[int]) -> dict[int, Pixels]:
    """Return the pixels of some test images, by their positions in the split."""
    needed = sorted(set(images))
    split = data.test.take(torch.tensor(needed))
    inputs = torch.cat([part.cpu() for part in split.in_order()]).float()
    of_bytes = data.test.inputs.dtype == torch.uint8
    low, high = (0.0, 255.0) if of_bytes else (inputs.min().item(), inputs.max().item())
    inputs = ((inputs - low) / max(high - low, 1e-9)).clamp(0, 1)
    side = min(inputs.shape[2:])
    if side > _PIXELS:
        height, width = (_PIXELS * length // side for length in inputs.shape[2:])
        inputs = adaptive_avg_pool2d(inputs, (height, width))
    else:  # a viewer that enlarges a small image would blur it
        inputs = interpolate(inputs, scale_factor=-(-_PIXELS // side), mode="nearest")
    return dict(zip(needed, inputs.permute(0, 2, 3, 1).double().numpy(), strict=True))


def caption(name: str) -> str:
    """Return a class's name in at most three lines; a longer name lacks its middle."""
    lengths = range(_LINES * _LETTERS, 0, -1)
    texts = (wrapped(shortened(name, length), _LETTERS) for length in lengths)
    return next(text for text in texts if text.count("\n") < _LINES)


def tile(ax: Axes, pixels: Pixels | None, x: float, y: float, name: str, *, framed: bool = False) -> None:
    """Draw an image of side 1 with a class's name below it; a class without a test image has only its name.

    Args:
        ax: The axes, whose vertical axis points down.
        pixels: The image; None if there is none.
        x: The left side.
        y: The upper side.
        name: The name; a long one is shortened.
        framed: Whether the image has a frame.
    """
    if pixels is not None:
        grey = pixels.shape[2] == 1
        ax.imshow(
            pixels[..., 0] if grey else pixels,
            cmap="gray",
            vmin=0,
            vmax=1,
            extent=(x + 0.05, x + 0.95, y + 0.95, y + 0.05),
            interpolation="none",
        )
    if framed:
        frame(ax, (x + 0.05, y + 0.05), (0.9, 0.9), _RIGHT, 1.5)
    ax.text(
        x + 0.5, y + 1.0, as_they_are(caption(name)), ha="center", va="top", fontsize=4.5, linespacing=1.0
    )
