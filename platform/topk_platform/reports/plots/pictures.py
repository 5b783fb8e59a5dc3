"""The plot of test images beside images of the K classes that a network guesses for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from topk_platform.data import Dataset, load
from topk_platform.data.dataset_table import feature_arguments
from topk_platform.errors import UserError
from topk_platform.records.per_image import read_guesses
from topk_platform.reports.plots.drawing import PAGE, panels, wrapped
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted
from topk_platform.specs import FEATURES, Arm, Regime

__all__ = ["guesses", "pixels_of", "tile"]

_Pixels = npt.NDArray[np.float64]
"""An image ``(height, width, 1 or 3)`` in [0, 1]."""

_PIXELS = 48  # images in a plot have no shorter side than this
_RIGHT = "#009E73"
_LETTERS = 9  # letters of a line below an image
_LINES = 3  # the most lines below an image; more would reach into the next row
_ROWS = 4  # images of each kind
_MOST = 10  # the most guesses in a row
_BESIDE = 5  # with up to so many guesses, the three kinds are side by side
_GAP = 0.4  # between an image and the guesses, in tiles
_LINE = 0.24  # the height of one line of a name, in tiles


class _Run(NamedTuple):
    """A confirmed run's guesses for its test images.

    Attributes:
        arm: Its arm.
        seed: Its seed.
        labels: The true class of each image, ``(N,)``.
        guesses: The K guesses, best first, ``(N, K)``.
        data: The dataset with the images.
    """

    arm: Arm
    seed: int
    labels: npt.NDArray[np.int64]
    guesses: npt.NDArray[np.int64]
    data: Dataset

    def kinds(self) -> Mapping[str, list[int]]:
        """Return some images that are right, right within K, and lost, by a title with the share of each kind.

        These are the first images of each of the four classes that have the most images of the kind.
        """
        hits = self.guesses == self.labels[:, None]
        first, among = hits[:, 0], hits.any(1)
        kinds = {"right": first, f"right within K = {self.arm.k}": among & ~first, "lost": ~among}
        result: dict[str, list[int]] = {}
        for name, kind in kinds.items():
            counts = np.bincount(self.labels[kind], minlength=1)
            most = [label for label in np.argsort(-counts, kind="stable")[:_ROWS] if counts[label]]
            chosen = [int(np.flatnonzero(kind & (self.labels == label))[0]) for label in most]
            result |= {f"{name}: {100 * kind.mean():.1f} %": chosen} if chosen else {}
        return result

    def name(self, label: int) -> str:
        """Return the name of a class, or its number."""
        names = self.data.class_names
        return names[label] if names else str(label)

    def example(self, label: int, image: int) -> int:
        """Return a test image of a class, other than ``image``; -1 if there is none.

        It is the first image whose first guess is right, or else the class's first image.
        """
        own = np.flatnonzero((self.labels == label) & (np.arange(len(self.labels)) != image))
        right = own[self.guesses[own, 0] == label]
        return int(right[0] if len(right) else own[0]) if len(own) else -1

    def row(self, image: int) -> list[int]:
        """Return the guessed classes that are drawn for an image: the best ten.

        If the true class is guessed, but not among them, it replaces the last one.
        """
        classes: list[int] = self.guesses[image].tolist()
        label = int(self.labels[image])
        return [*classes[: _MOST - 1], label] if label in classes[_MOST:] else classes[:_MOST]


def guesses(data: Plotted) -> Figure:
    """Draw test images with their K guesses: images that are right, images that are right within K, and lost images.

    A row begins with a test image and its true class. Next to it are images of the guessed classes, the best guess
    first, so that look-alikes can be compared. The true class has a frame. The guesses are those of the first completed
    seed of the baseline, or else of the first arm with kept guesses. Each kind shows one image of each of the four
    classes that have the most images of this kind.
    """
    run = _first_run(data)
    across = 3 if run.guesses.shape[1] <= _BESIDE else 1
    kinds = run.kinds()
    images = {image for chosen in kinds.values() for image in chosen}
    beside = {run.example(label, image) for image in images for label in run.row(image)} - {-1}
    pixels = pixels_of(run.data, images | beside)
    lines = max(_caption(run.name(int(label))).count("\n") + 1 for label in set(run.labels.tolist()))
    step = 1.1 + _LINE * lines
    tiles = 1 + _GAP + min(run.guesses.shape[1], _MOST)
    made, axes = panels(list(kinds), 0.3 + _ROWS * step * (PAGE / across - 0.1) / tiles, across=across)
    made.set_size_inches(PAGE, made.get_size_inches()[1])
    for ax, chosen in zip(axes, kinds.values(), strict=True):
        for row, image in enumerate(chosen):
            _draw_row(ax, run, pixels, image, row * step)
        ax.set_xlim(0, tiles)
        ax.set_ylim(_ROWS * step, 0)
        ax.set_aspect("equal")
        ax.set_axis_off()
    made.suptitle(f"{wrapped(run.arm.name, 80)}, seed {run.seed}", fontsize="medium", x=0.02, ha="left")
    return made


def _first_run(data: Plotted) -> _Run:
    """Return the first completed seed with kept guesses, of the baseline's arm or else of the first arm with one."""
    for key in sorted(data.arms, key=lambda key: data.arms[key].loss.label != data.study.baseline):
        for row in data.completed(key):
            kept = read_guesses(data.held.ledger.store, row)
            ranks = data.held.ranks([row]).get(row["key"])
            if kept is not None and ranks is not None:
                shown = _dataset_of_images(data.arms[key].regime, ranks.images)
                return _Run(data.arms[key], row["seed"], ranks.label, kept.classes, shown)
    raise NothingToPlotError("no confirmed run has kept its guesses for the test images")


def _draw_row(ax: Axes, run: _Run, pixels: Mapping[int, _Pixels], image: int, top: float) -> None:
    label = int(run.labels[image])
    tile(ax, pixels[image], 0.0, top, run.name(label))
    for position, guess in enumerate(run.row(image)):
        example = pixels.get(run.example(guess, image))
        tile(ax, example, 1 + _GAP + position, top, run.name(guess), framed=guess == label)


def _dataset_of_images(regime: Regime, images: str) -> Dataset:
    """Return the dataset on whose test images runs were tested; of features, the dataset of their images.

    Args:
        regime: The regime.
        images: The test split's fingerprint, as the runs recorded it.

    Raises:
        NothingToPlotError: if the images are not on this machine, this machine has different images, the test samples
            are not images, or every seed draws its own test samples.
    """
    source = shown = _read(regime)
    if regime.dataset == FEATURES:  # the images have the same splits in the same order
        given = feature_arguments(regime.options)
        shown = _read(replace(regime, dataset=given["of"], options=given["options"]))
    if len(shown.shape) != 3 or shown.shape[0] not in (1, 3):
        raise NothingToPlotError("the inputs of the networks are not images")
    if source.test.fingerprint != images:
        raise NothingToPlotError("the test images on this machine are not those that the runs were tested on")
    return shown


def _read(regime: Regime) -> Dataset:
    try:
        source = load(regime)
    except UserError as error:
        raise NothingToPlotError(f"the test images cannot be read on this machine: {error}") from error
    if not isinstance(source, Dataset):
        raise NothingToPlotError("every seed draws test samples of its own, which are not kept")
    return source


def pixels_of(data: Dataset, images: Iterable[int]) -> dict[int, _Pixels]:
    """Return the pixels of some test images, by their positions in the split."""
    needed = sorted(images)
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


def _caption(name: str) -> str:
    """Return a class's name in at most three lines; a longer name lacks its middle.

    Long names of classes often begin with a number or a family, and end with what tells them apart.
    """
    texts = [wrapped(name, _LETTERS)]
    for length in range(_LINES * _LETTERS, 1, -1):
        end = (length - 1) // 2
        texts.append(wrapped(f"{name[: length - 1 - end]}…{name[len(name) - end :]}", _LETTERS))
    return next(text for text in texts if text.count("\n") < _LINES)


def tile(ax: Axes, pixels: _Pixels | None, x: float, y: float, name: str, *, framed: bool = False) -> None:
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
        extent = (x + 0.05, x + 0.95, y + 0.95, y + 0.05)
        ax.imshow(pixels.squeeze(), cmap="gray", vmin=0, vmax=1, extent=extent, interpolation="none")
    if framed:
        corner = (x + 0.05, y + 0.05)
        ax.add_patch(Rectangle(corner, 0.9, 0.9, fill=False, edgecolor=_RIGHT, linewidth=1.5))
    # Text between two dollar signs would be a formula.
    text = _caption(name).replace("$", r"\$")
    ax.text(x + 0.5, y + 1.0, text, ha="center", va="top", fontsize=4.5, linespacing=1.0)
