"""Decision regions on the ring: the angles at which a class is among a network's guesses."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from safetensors.torch import load
from torch import nn

from topk_platform.metrics import topk_credit
from topk_platform.models import architecture_of, build_model
from topk_platform.records.networks import read_model
from topk_platform.records.rows import Row
from topk_platform.records.storage.store import Store
from topk_platform.reports.plots.drawing import legend_of, panels, wrapped
from topk_platform.reports.plots.plot_data import INK, NothingToPlotError, Plotted, UnsuitedStudyError
from topk_platform.specs import Arm, Regime, Scalar

__all__ = ["densities", "regions"]

_Array = npt.NDArray[np.float64]
_ANGLES = np.arange(0.0, 360.5, 0.5)
_CLASS = 2  # the class that sawada2020 draws; by symmetry any class would do
_DEFAULTS: Mapping[str, Scalar] = {"sigma": 10.0, "distance": 0.0, "classes": 6}
_MINOR = 1 / 3
_TURNS = (-2, -1, 0, 1, 2)
_BELOW = 1.6  # the height of the densities, in bands


def densities(regime: Regime, angles: npt.ArrayLike) -> _Array:
    """Return the classes' densities per degree on the ring, ``(L, n)``, for a regime of the dataset ``ring``.

    Args:
        regime: The regime; its σ must be above 0.
        angles: The angles in degrees, ``(n,)``.

    Source:
        Sawada et al., Trade-offs in Top-k Classification Accuracies on Losses for Deep Learning, 2020, section IV.

    Example:
        >>> result = densities(Regime("r", "ring", options={"sigma": 20}), range(360))
        >>> result.shape, result.sum(1).round(6).tolist(), result.argmax(0)[[0, 60, 120]].tolist()
        ((6, 360), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0, 1, 2])
    """
    sigma, distance, classes = _options(regime)
    centres = np.arange(classes)[:, None] * 360.0 / classes
    away = np.asarray(angles, float)[None] - centres
    modes = ((1 - _MINOR, 0.0), (_MINOR, distance))
    return np.asarray(sum(share * _wrapped_normal(away - moved, sigma) for share, moved in modes), float)


def _has_class(regime: Regime) -> bool:
    return regime.dataset == "ring" and _options(regime)[2] > _CLASS


def _options(regime: Regime) -> tuple[float, float, int]:
    result = {**_DEFAULTS, **regime.options}
    sigma, distance, classes = (result[name] for name in ("sigma", "distance", "classes"))
    return float(sigma or 0), float(distance or 0), int(classes or 0)


def _wrapped_normal(away: _Array, sigma: float) -> _Array:
    turns = (np.exp(-(((away + 360 * turn) / sigma) ** 2) / 2) for turn in _TURNS)
    return np.asarray(sum(turns), float) / (sigma * math.sqrt(2 * math.pi))


def regions(data: Plotted) -> Figure:
    """Draw where on the ring class 2 is the first guess of the confirmed networks, and where it is among the K guesses.

    The upper part has a band for each loss. At each angle, the band is filled up to the share of seeds whose network
    guesses the class there. The lower part shows the classes' densities. The area in which class 2 is the most frequent
    is shaded.

    Source:
        Sawada et al., Trade-offs in Top-k Classification Accuracies on Losses for Deep Learning, 2020, Fig. 5, which
        draws one network for each loss.
    """
    on_ring = {key: arm for key, arm in data.arms.items() if _has_class(arm.regime)}
    if not on_ring:
        raise UnsuitedStudyError(f"the study has no arm on a ring with a class {_CLASS}")
    bands = {key: band for key, arm in on_ring.items() if (band := _band(data, key, arm)) is not None}
    if not bands:
        raise NothingToPlotError("no confirmed run on the ring has kept its network")
    rows = [row for row in data.table.rows if any(row == r for r, _ in bands)]
    columns = data.columns(bands)
    made, axes = panels(columns, 0.75 + 0.32 * (len(rows) + _BELOW), sharex=True, sharey=True)
    for column, ax in zip(columns, axes, strict=True):
        for position, row in enumerate(reversed(rows)):
            if (row, column) in bands:
                _filled(ax, data.look(row, column).colour, position, bands[row, column])
        _below(ax, next(arm for (_, c), arm in on_ring.items() if c == column))
        ax.set_yticks(range(len(rows)), [wrapped(row, 24) for row in reversed(rows)])
        ax.set_ylim(-_BELOW - 0.15, len(rows) - 0.1)
        ax.set_xlim(0, 360)
        ax.set_xticks(range(0, 361, 60))
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_xlabel("angle, degrees")
    legend_of(made, *_meaning({arm.k for arm in on_ring.values()}), inches=3.4)
    return made


def _band(data: Plotted, key: tuple[str, str], arm: Arm) -> _Array | None:
    """Return at each angle the share of an arm's networks with the class as first guess, and among the K guesses.

    None if no completed seed has kept its network.
    """
    angles = torch.deg2rad(torch.from_numpy(_ANGLES))
    points = torch.stack([angles.cos(), angles.sin()], 1).float()
    networks = filter(None, (_kept_network(data.held.ledger.store, row) for row in data.completed(key)))
    target = torch.full((len(points),), _CLASS)
    with torch.no_grad():
        result = [topk_credit(network(points).float(), target, (1, arm.k)).numpy() for network in networks]
    return np.asarray(np.mean(result, 0), float) if result else None


def _kept_network(store: Store, row: Row) -> nn.Module | None:
    """Return a confirmed run's network.

    Args:
        store: The study's folder.
        row: The run's row of the ledger.

    Returns:
        The network, in evaluation mode, or None if no network was kept.

    Raises:
        UserError: if the function that builds the network cannot be found, or the network cannot be read.
    """
    saved = read_model(store, row)
    if saved is None:
        return None
    arm, takes = saved.trial.arm, saved.inputs
    with torch.random.fork_rng(devices=[]):
        network = build_model(architecture_of(arm.model), takes.shape, takes.classes, arm.loss.head)
    network.load_state_dict(load(saved.content))
    return network.eval()


def _filled(ax: Axes, colour: str, position: int, band: _Array) -> None:
    for share, alpha in ((band[1], 0.35), (band[0], 1.0)):
        ax.fill_between(_ANGLES, position, position + 0.75 * share, color=colour, alpha=alpha, linewidth=0)
    ax.axhline(position, color=INK, linewidth=0.3)


def _below(ax: Axes, arm: Arm) -> None:
    """Draw the classes' densities, unless σ is 0."""
    if not _options(arm.regime)[0] > 0:
        return
    result = densities(arm.regime, _ANGLES)
    scale, floor = (_BELOW - 0.3) / result.max(), -_BELOW
    for label, density in enumerate(result):
        own = label == _CLASS
        ax.plot(
            _ANGLES,
            floor + scale * density,
            color=INK,
            linewidth=1.2 if own else 0.4,
            alpha=1 if own else 0.5,
        )
    most = result.argmax(0) == _CLASS
    ax.fill_between(
        _ANGLES, floor, floor + scale * result[_CLASS], where=most, color=INK, alpha=0.2, linewidth=0
    )


def _meaning(ks: set[int]) -> tuple[list[Artist], list[str]]:
    k = str(ks.pop()) if len(ks) == 1 else "K"
    grey = "#7A7A7A"
    parts: dict[str, Artist] = {
        f"class {_CLASS} is the first guess, share of seeds": Patch(color=grey),
        f"it is among the {k} guesses": Patch(color=grey, alpha=0.35, linewidth=0),
        f"density of class {_CLASS}; shaded: the most frequent": Line2D([], [], color=INK, linewidth=1.2),
        "densities of the others": Line2D([], [], color=INK, linewidth=0.4, alpha=0.5),
    }
    return list(parts.values()), list(parts)
