"""Plots of the classes that are among the K guesses beside the true class, and groups of such look-alikes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import sparse
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from topk_platform.reports.plots.drawing import as_they_are, figure, frame, shortened, wrapped
from topk_platform.reports.plots.plot_data import INK, PAGE, NothingToPlotError, Plotted, RunGuesses

__all__ = ["confusion", "groups_of", "sharing"]

_Array = npt.NDArray[np.float64]
_FEW = 16  # with up to so many classes, several arms are drawn side by side
_MOST = 64  # the most classes that a matrix shows
_MATRIX = 256  # with more classes, pairs of classes are drawn instead of a matrix
_PANELS, _ACROSS = 6, 3
_LETTERS = 14  # letters of a title per inch
_PANEL_LINE = 24  # letters in a line of a panel's title, if there are several panels
_NAME = 24  # letters of a class's name; more would leave the matrix no room
_ALIKE = 0.5
_ROW = 0.1  # inches; room for a name in the smallest readable letters


class _Confused(NamedTuple):
    """How an arm's runs confused the classes.

    Attributes:
        name: The arm's name, ``regime/model/loss``.
        runs: K and the number of seeds, in words.
        shares: The result of :func:`sharing`, as the mean over the seeds.
        names: The names of the classes.
        first: The first of the runs.
    """

    name: str
    runs: str
    shares: sparse.csr_array
    names: Sequence[str]
    first: RunGuesses


def sharing(labels: npt.NDArray[np.int64], guesses: npt.NDArray[np.int64], classes: int) -> sparse.csr_array:
    """Return how often each class is among the guesses for the images of each class, as shares ``(L, L)``.

    Rows are true classes, columns are guessed classes. The diagonal is each class's top-K accuracy. The row of a class
    with images sums to K; the row of a class without images is 0.

    Args:
        labels: The true class of each image, ``(N,)``.
        guesses: The K guesses for each image, ``(N, K)``.
        classes: The number of classes L.

    Example:
        >>> sharing(np.array([0, 0, 1]), np.array([[0, 1], [0, 2], [1, 0]]), 3).toarray()
        array([[1. , 0.5, 0.5],
               [1. , 1. , 0. ],
               [0. , 0. , 0. ]])
    """
    counts = np.bincount(labels, minlength=classes)
    weights = np.repeat(1 / counts[labels], guesses.shape[1])
    positions = np.repeat(labels, guesses.shape[1]), guesses.ravel()
    return sparse.csr_array(sparse.coo_array((weights, positions), shape=(classes, classes)))


def groups_of(shares: _Array, alike: float = _ALIKE) -> list[list[int]]:
    """Return classes in groups of look-alikes. Similar groups, and similar classes in a group, are next to each other.

    The likeness of two classes is the mean of two shares: how often each is among the guesses for the other. Groups are
    joined as long as their mean likeness (average linkage) is at least ``alike``.

    Args:
        shares: The shares ``(n, n)`` from :func:`sharing`.
        alike: The smallest mean likeness at which two groups are joined.

    Example:
        >>> groups_of(np.array([[1, 0, 0.9], [0, 1, 0.1], [0.7, 0, 1]]))
        [[1], [2, 0]]
    """
    if len(shares) < 2:
        return [list(range(len(shares)))]
    distance = 1 - np.minimum(np.asarray((shares + shares.T) / 2, float), 1)
    np.fill_diagonal(distance, 0)
    tree = hierarchy.linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
    result = hierarchy.fcluster(tree, 1 - alike + 1e-9, "distance")
    groups: dict[int, list[int]] = {}
    for position in hierarchy.leaves_list(tree).tolist():
        groups.setdefault(int(result[position]), []).append(position)
    return list(groups.values())


def confusion(data: Plotted) -> Figure:
    """Draw which classes are among the K guesses for each true class, as shares of the test images.

    Groups of look-alikes have a frame. With up to sixteen classes, up to six arms of the first regime are drawn side by
    side. With more classes, only one arm of this regime is drawn: the baseline's, or else the first that is shown. With
    more than 64 classes, the plot shows the 64 classes that have the closest look-alikes. With more than 256 classes,
    it shows the hundred pairs of classes that are most often among the guesses for one another, with a test image of
    each class.
    """
    arms = _drawn(data)
    if len(arms[0].names) > _MATRIX:
        from topk_platform.reports.plots.pictures import draw_pairs  # noqa: PLC0415 - imports torch, which only images need

        arm = arms[0]
        return draw_pairs(
            arm.shares, arm.names, arm.first, f"{arm.name}, {arm.runs}, {len(arm.names)} classes"
        )
    chosen = _chosen(sum((arm.shares for arm in arms[1:]), arms[0].shares))
    groups = groups_of(np.mean([arm.shares[chosen][:, chosen].toarray() for arm in arms], axis=0))
    order = chosen[[key for group in groups for key in group]]
    made, axes = _axes(arms, len(order))
    titles = _titles(made, arms)
    for arm, ax, title in zip(arms, axes, titles, strict=True):
        image = ax.imshow(arm.shares[order][:, order].toarray(), cmap="YlGnBu", vmin=0, vmax=1)
        _framed(ax, groups)
        _named(ax, [arm.names[label] for label in order])
        more = "" if len(order) == arm.shares.shape[0] else f": {len(order)} of {arm.shares.shape[0]} classes"
        ax.set_title(f"{title}{more}")
    made.colorbar(image, ax=axes, label="share of the images\nof the row's class", shrink=0.5, pad=0.02)
    return made


def _titles(made: Figure, arms: Sequence[_Confused]) -> list[str]:
    """Return the panels' titles. If there are several arms, write their common regime as the figure's title."""
    width, height = made.get_size_inches()
    line = int(_LETTERS * (width - 0.9))
    if len(arms) == 1:
        return [f"{wrapped(arm.name, line)}\n{arm.runs}" for arm in arms]
    titles = [f"{wrapped(arm.name.partition('/')[2], _PANEL_LINE)}\n{arm.runs}" for arm in arms]
    made.suptitle(wrapped(arms[0].name.partition("/")[0], line), fontsize="medium", x=0.02, ha="left")
    lines = max(title.count("\n") for title in titles)
    made.set_size_inches(width, height + 0.2 + 0.12 * (lines - 1) * math.ceil(len(arms) / _ACROSS))
    return titles


def _drawn(data: Plotted) -> list[_Confused]:
    kept: dict[tuple[str, str], list[RunGuesses]] = {}
    names: list[str] = []
    for key in _first_regime(data):
        if not (runs := list(data.guessed(key))):
            continue
        kept[key] = runs
        note = data.held.data.get(runs[0].arm.regime.name)
        names = list(note.names) if note is not None else []
        seen = 1 + max(max(run.labels.max(), run.guesses.max()) for runs in kept.values() for run in runs)
        names += map(str, range(len(names), max(seen, note.samples.classes if note is not None else 0)))
        if len(names) > _FEW or len(kept) == _PANELS:
            break
    if not kept:
        raise NothingToPlotError("no confirmed run has kept its guesses for the test images")
    return [_confused(runs, names) for runs in kept.values()]


def _confused(runs: Sequence[RunGuesses], names: Sequence[str]) -> _Confused:
    arm, count = runs[0].arm, len(names)
    none = sparse.csr_array((count, count), dtype=float)
    total = sum((sharing(run.labels, run.guesses, count) for run in runs), none)
    text = f"K = {arm.k}, n = {len(runs)} seeds"
    return _Confused(arm.name, text, sparse.csr_array(total / len(runs)), names, runs[0])


def _first_regime(data: Plotted) -> list[tuple[str, str]]:
    """Return the arms of the first regime with confirmations, the baseline's arm first."""
    ended = [arm_key for arm_key in data.arms if data.table.confirmations.get(arm_key)]
    first = data.columns(ended)[:1]
    shown = [arm_key for arm_key in ended if arm_key[1] in first]
    return sorted(shown, key=lambda arm_key: data.arms[arm_key].loss.label != data.study.baseline)


def _chosen(shares: sparse.csr_array) -> npt.NDArray[np.int64]:
    """Return the classes to draw: all of them, or those with the closest look-alikes."""
    count = shares.shape[0]
    if count <= _MOST:
        return np.arange(count)
    likeness = (shares + shares.T).tolil()
    likeness.setdiag(0)
    most = np.asarray(likeness.tocsr().max(axis=1).toarray(), float).ravel()
    return np.sort(np.argsort(-most, kind="stable")[:_MOST])


def _axes(arms: Sequence[_Confused], count: int) -> tuple[Figure, list[Axes]]:
    if len(arms) == 1:
        side = max(2.6, min(PAGE - 0.9, 0.8 + count * _ROW))
        made = figure(side + 0.9, side)
        return made, [made.subplots()]
    across = min(len(arms), _ACROSS)
    down = math.ceil(len(arms) / across)
    made = figure(PAGE if across == _ACROSS else PAGE * 0.7, 2.45 * down)
    # This engine leaves no gaps between square panels.
    made.set_layout_engine("compressed", h_pad=0.06, w_pad=0.06)
    grid = list(made.subplots(down, across, squeeze=False).flat)
    for ax in grid[len(arms) :]:
        ax.remove()
    return made, grid[: len(arms)]


def _framed(ax: Axes, groups: Sequence[Sequence[int]]) -> None:
    start = 0
    for group in groups:
        if len(group) > 1:
            frame(ax, (start - 0.5, start - 0.5), (len(group), len(group)), INK, 0.7)
        start += len(group)


def _named(ax: Axes, names: Sequence[str]) -> None:
    names, size = [as_they_are(shortened(name, _NAME)) for name in names], 6.5 if len(names) <= _FEW else 5
    ax.set_yticks(range(len(names)), names, fontsize=size)
    ax.set_xticks(range(len(names)), names, fontsize=size)
    if max(map(len, names)) > (3 if len(names) <= _FEW else 1):
        for label in ax.get_xticklabels():
            label.set(rotation=90, ha="center", va="top")
    ax.set_ylabel("true class")
    ax.set_xlabel("among the guesses")
    ax.tick_params(length=0, pad=1)
