"""Plots with test images: images beside their K guesses, and pairs of classes that are guessed for one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import sparse
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from topk_platform.data import Dataset, load
from topk_platform.data.dataset_table import feature_arguments
from topk_platform.errors import UserError
from topk_platform.reports.plots.drawing import as_they_are, figure, frame, panels, shortened, wrapped
from topk_platform.reports.plots.plot_data import (
    PAGE,
    NothingToPlotError,
    Plotted,
    RunGuesses,
    UnsuitedStudyError,
)
from topk_platform.specs import FEATURES, Regime

__all__ = ["draw_pairs", "guesses", "pixels_of", "tile", "worst_pairs"]

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
_PAIRS = 100
_ACROSS = 10  # pairs in a row
_WIDTH, _HEIGHT = 2.5, 2.0  # the size of a pair with its names and shares, in tiles


class _Run(NamedTuple):
    """A confirmed run with the dataset that it was tested on."""

    of: RunGuesses
    data: Dataset

    @property
    def kinds(self) -> Mapping[str, npt.NDArray[np.bool_]]:
        """The images that are right, right within K, and lost, as masks ``(N,)``, by a title with their share."""
        hits = self.of.guesses == self.of.labels[:, None]
        first, among = hits[:, 0], hits.any(1)
        kinds = {"right": first, f"right within K = {self.of.arm.k}": among & ~first, "lost": ~among}
        return {f"{name}: {100 * kind.mean():.1f} %": kind for name, kind in kinds.items()}

    def name(self, label: int) -> str:
        """Return the name of a class, or its number."""
        names = self.data.class_names
        return names[label] if names else str(label)

    def example(self, label: int, image: int) -> int:
        """Return a test image of a class, other than ``image``; -1 if there is none.

        It is the first image whose first guess is right, or else the class's first image.
        """
        own = np.flatnonzero((self.of.labels == label) & (np.arange(len(self.of.labels)) != image))
        right = own[self.of.guesses[own, 0] == label]
        return int(right[0] if len(right) else own[0]) if len(own) else -1

    def row(self, image: int) -> list[int]:
        """Return the guessed classes that are drawn for an image: the best ten.

        If the true class is guessed, but not among them, it replaces the last one.
        """
        classes: list[int] = self.of.guesses[image].tolist()
        label = int(self.of.labels[image])
        return [*classes[: _MOST - 1], label] if label in classes[_MOST:] else classes[:_MOST]


def guesses(data: Plotted) -> Figure:
    """Draw test images with their K guesses: images that are right, images that are right within K, and lost images.

    A row begins with a test image and its true class. Next to it are images of the guessed classes, the best guess
    first, so that look-alikes can be compared. The true class has a frame. The guesses are those of the first completed
    seed of the baseline, or else of the first arm with kept guesses. Each kind shows one image of each of the four
    classes that have the most images of this kind.
    """
    run = _run(data)
    across = 3 if run.of.guesses.shape[1] <= _BESIDE else 1
    kinds = {title: chosen for title, kind in run.kinds.items() if (chosen := _chosen(run, kind))}
    images = [image for chosen in kinds.values() for image in chosen]
    beside = {run.example(label, image) for image in images for label in run.row(image)} - {-1}
    pixels = pixels_of(run.data, {*images, *beside})
    lines = max(_caption(run.name(int(label))).count("\n") + 1 for label in set(run.of.labels.tolist()))
    step = 1.1 + _LINE * lines
    tiles = 1 + _GAP + min(run.of.guesses.shape[1], _MOST)
    made, axes = panels(list(kinds), 0.3 + _ROWS * step * (PAGE / across - 0.1) / tiles, across=across)
    made.set_size_inches(PAGE, made.get_size_inches()[1])
    for ax, chosen in zip(axes, kinds.values(), strict=True):
        for row, image in enumerate(chosen):
            _draw_row(ax, run, pixels, image, row * step)
        ax.set_xlim(0, tiles)
        ax.set_ylim(_ROWS * step, 0)
        ax.set_aspect("equal")
        ax.set_axis_off()
    made.suptitle(f"{wrapped(run.of.arm.name, 80)}, seed {run.of.seed}", fontsize="medium", x=0.02, ha="left")
    return made


def _run(data: Plotted) -> _Run:
    """Return the first completed seed with kept guesses, of the baseline's arm or else of the first arm with one."""
    arms = sorted(data.arms, key=lambda key: data.arms[key].loss.label != data.study.baseline)
    run = next((run for key in arms for run in data.guessed(key)), None)
    if run is None:
        raise NothingToPlotError("no confirmed run has kept its guesses for the test images")
    return _Run(run, _dataset_of_images(run.arm.regime, run.images))


def _chosen(run: _Run, kind: npt.NDArray[np.bool_]) -> list[int]:
    """Return images of a kind: the first image of each of the classes that have the most images of this kind."""
    counts = np.bincount(run.of.labels[kind], minlength=1)
    most = np.argsort(-counts, kind="stable")[:_ROWS]
    return [int(np.flatnonzero(kind & (run.of.labels == label))[0]) for label in most if counts[label]]


def _draw_row(ax: Axes, run: _Run, pixels: Mapping[int, _Pixels], image: int, top: float) -> None:
    label = int(run.of.labels[image])
    tile(ax, pixels[image], 0.0, top, run.name(label))
    for position, guess in enumerate(run.row(image)):
        example = pixels.get(run.example(guess, image))
        tile(ax, example, 1 + _GAP + position, top, run.name(guess), framed=guess == label)


def _confused_image(run: RunGuesses, label: int, other: int) -> int:
    """Return the first test image of a class with another class among its guesses, or else its first; -1 if none."""
    own = np.flatnonzero(run.labels == label)
    confused = own[(run.guesses[own] == other).any(1)]
    return int(confused[0] if len(confused) else own[0]) if len(own) else -1


def worst_pairs(shares: sparse.csr_array, count: int = _PAIRS) -> list[tuple[int, int]]:
    """Return the pairs of classes that are most often among the guesses for one another, the worst first.

    Pairs are ordered by the mean of both shares, and equal ones by the classes' numbers.

    Args:
        shares: The share of each true class (row) that has each class (column) among the guesses, ``(L, L)``.
        count: The most pairs.

    Example:
        >>> worst_pairs(sparse.csr_array([[1, 0.5, 0.0], [0.2, 1, 0.1], [0.0, 0.3, 1]]), 2)
        [(0, 1), (1, 2)]
    """
    both = sparse.coo_array(sparse.triu(shares + shares.T, k=1))
    seen = both.data > 0
    rows, columns = (positions[seen] for positions in both.coords)
    order = np.lexsort((columns, rows, -both.data[seen]))[:count]
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def draw_pairs(shares: sparse.csr_array, names: Sequence[str], tested: RunGuesses, title: str) -> Figure:
    """Draw the hundred worst pairs of classes.

    Each pair has a test image of both classes, and how many images of one class have the other among their guesses. If
    the test samples are not on this machine, or are not images, only names and shares are drawn.

    Args:
        shares: As in :func:`worst_pairs`.
        names: The names of the classes.
        tested: The run whose test images are drawn.
        title: The title.

    Raises:
        NothingToPlotError: if no class is among the guesses for another.
    """
    pairs = worst_pairs(shares)
    if not pairs:
        raise NothingToPlotError("no class is among the guesses for another")
    chosen = [(_confused_image(tested, a, b), _confused_image(tested, b, a)) for a, b in pairs]
    pixels: dict[int, _Pixels] = {}
    with suppress(NothingToPlotError):
        data = _dataset_of_images(tested.arm.regime, tested.images)
        pixels = pixels_of(data, {image for both in chosen for image in both} - {-1})
    down = -(-len(pairs) // _ACROSS)
    made = figure(PAGE, 0.6 + down * PAGE / _ACROSS * _HEIGHT / _WIDTH)
    ax = made.subplots()
    for number, (pair, images) in enumerate(zip(pairs, chosen, strict=True)):
        corner = number % _ACROSS * _WIDTH, number // _ACROSS * _HEIGHT
        for column, (label, image) in enumerate(zip(pair, images, strict=True)):
            tile(ax, pixels.get(image), corner[0] + column, corner[1], names[label])
        text = f"{100 * shares[pair[0], pair[1]]:.0f} %, {100 * shares[pair[1], pair[0]]:.0f} %"
        ax.text(corner[0] + 1, corner[1] + _HEIGHT - 0.1, text, ha="center", va="bottom", fontsize=4.5)
    ax.set_xlim(0, _ACROSS * _WIDTH)
    ax.set_ylim(down * _HEIGHT, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    made.suptitle(wrapped(title, 100), fontsize="medium", x=0.02, ha="left")
    return made


def _dataset_of_images(regime: Regime, images: str) -> Dataset:
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


def pixels_of(data: Dataset, images: Iterable[int]) -> dict[int, _Pixels]:
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


def _caption(name: str) -> str:
    """Return a class's name in at most three lines; a longer name lacks its middle."""
    lengths = range(_LINES * _LETTERS, 0, -1)
    texts = (wrapped(shortened(name, length), _LETTERS) for length in lengths)
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
        x + 0.5, y + 1.0, as_they_are(_caption(name)), ha="center", va="top", fontsize=4.5, linespacing=1.0
    )
