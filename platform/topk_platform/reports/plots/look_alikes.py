"""Plot of the pairs of classes that are most often guessed for one another, with a test image of each class."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import sparse

from topk_platform.reports.plots.drawing import figure
from topk_platform.reports.plots.pictures import Pixels, dataset_of_images, pixels_of, tile
from topk_platform.reports.plots.plot_data import NothingToPlotError, RunGuesses
from topk_platform.reports.plots.style import PAGE
from topk_platform.reports.words import wrapped

__all__ = ["draw_pairs", "worst_pairs"]

_PAIRS = 100
_ACROSS = 10  # pairs in a row
_WIDTH, _HEIGHT = 2.5, 2.0  # the size of a pair with its names and shares, in tiles
_TITLE = 0.6  # the height of the title, in inches


def _example(run: RunGuesses, label: int, other: int) -> int:
    """Return the first test image of a class with another class among its guesses, or else its first; -1 if none."""
    own = np.flatnonzero(run.labels == label)
    confused = own[(run.guesses[own] == other).any(1)]
    return int(confused[0] if len(confused) else own[0]) if len(own) else -1


def worst_pairs(shares: sparse.csr_array, count: int = _PAIRS) -> list[tuple[int, int]]:
    """Return the pairs of classes that are most often among the guesses for one another, the worst first.

    Pairs are ordered by the mean of both shares, and equal ones by the classes' numbers. Pairs that are never among the
    guesses for one another are left out.

    Args:
        shares: How often each class (column) is among the guesses for the images of each true class (row), as shares
            ``(L, L)``.
        count: The most pairs.

    Example:
        >>> worst_pairs(sparse.csr_array([[1, 0.5, 0.0], [0.2, 1, 0.1], [0.0, 0.3, 1]]), 2)
        [(0, 1), (1, 2)]
    """
    both = sparse.coo_array(sparse.triu(shares + shares.T, k=1))
    seen = both.data > 0
    rows, columns = (places[seen] for places in both.coords)
    order = np.lexsort((columns, rows, -both.data[seen]))[:count]
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def draw_pairs(shares: sparse.csr_array, names: Sequence[str], tested: RunGuesses, title: str) -> Figure:
    """Draw the hundred worst pairs of classes.

    Each pair has a test image of both classes, and two shares: how many images of one class have the other class among
    their guesses. If the test samples are not on this machine, or are not images, only names and shares are drawn.

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
    chosen = [(_example(tested, one, other), _example(tested, other, one)) for one, other in pairs]
    pixels: dict[int, Pixels] = {}
    with suppress(NothingToPlotError):
        data = dataset_of_images(tested.arm.regime, tested.images)
        pixels = pixels_of(data, {image for both in chosen for image in both} - {-1})
    down = -(-len(pairs) // _ACROSS)
    made = figure(PAGE, _TITLE + down * PAGE / _ACROSS * _HEIGHT / _WIDTH)
    ax = made.subplots()
    for number, (pair, images) in enumerate(zip(pairs, chosen, strict=True)):
        corner = number % _ACROSS * _WIDTH, number // _ACROSS * _HEIGHT
        for column, (label, image) in enumerate(zip(pair, images, strict=True)):
            tile(ax, pixels.get(image), corner[0] + column, corner[1], names[label])
        _write_shares(ax, corner, float(shares[pair[0], pair[1]]), float(shares[pair[1], pair[0]]))
    ax.set_xlim(0, _ACROSS * _WIDTH)
    ax.set_ylim(down * _HEIGHT, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    made.suptitle(wrapped(title, 100), fontsize="medium", x=0.02, ha="left")
    return made


def _write_shares(ax: Axes, corner: tuple[float, float], one: float, other: float) -> None:
    text = f"{100 * one:.0f} %, {100 * other:.0f} %"
    ax.text(corner[0] + 1, corner[1] + _HEIGHT - 0.1, text, ha="center", va="bottom", fontsize=4.5)
