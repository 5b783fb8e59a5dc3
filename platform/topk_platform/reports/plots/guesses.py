"""Plot of test images with the K guesses of a confirmed network, and with an image of each guessed class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_platform.data import Dataset
from topk_platform.reports.plots.drawing import panels
from topk_platform.reports.plots.pictures import Pixels, caption, dataset_of_images, pixels_of, tile
from topk_platform.reports.plots.plot_data import NothingToPlotError, Plotted, RunGuesses
from topk_platform.reports.plots.style import PAGE
from topk_platform.reports.words import wrapped

__all__ = ["guesses"]

_ROWS = 4  # images of each kind
_MOST = 10  # the most guesses in a row
_BESIDE = 5  # with up to so many guesses, the three kinds are side by side
_GAP = 0.4  # between an image and the guesses, in tiles
_LINE = 0.24  # the height of one line of a name, in tiles


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
    pixels = _pixels(run, [image for chosen in kinds.values() for image in chosen])
    lines = max(caption(run.name(int(label))).count("\n") + 1 for label in set(run.of.labels.tolist()))
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
    return _Run(run, dataset_of_images(run.arm.regime, run.images))


def _chosen(run: _Run, kind: npt.NDArray[np.bool_]) -> list[int]:
    """Return images of a kind: the first image of each of the classes that have the most images of this kind."""
    counts = np.bincount(run.of.labels[kind], minlength=1)
    most = np.argsort(-counts, kind="stable")[:_ROWS]
    return [int(np.flatnonzero(kind & (run.of.labels == label))[0]) for label in most if counts[label]]


def _pixels(run: _Run, images: Sequence[int]) -> dict[int, Pixels]:
    """Return the pixels of images and of the examples beside them."""
    beside = {run.example(label, image) for image in images for label in run.row(image)} - {-1}
    return pixels_of(run.data, {*images, *beside})


def _draw_row(ax: Axes, run: _Run, pixels: Mapping[int, Pixels], image: int, top: float) -> None:
    label = int(run.of.labels[image])
    tile(ax, pixels[image], 0.0, top, run.name(label))
    for position, guess in enumerate(run.row(image)):
        example = pixels.get(run.example(guess, image))
        tile(ax, example, 1 + _GAP + position, top, run.name(guess), framed=guess == label)
