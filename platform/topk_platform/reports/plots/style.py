"""The look of plots. A loss has the same colour and marker in all plots; colour-blind readers can tell them apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from topk_platform.loss_catalogue import INK, LOSS_CATALOGUE, PALETTE
from topk_platform.specs import Loss

__all__ = ["COLUMN", "INK", "OTHERS", "PAGE", "Look", "looks", "styled"]

COLUMN = 3.5
"""The width of a journal's column, in inches."""
PAGE = 7.2
"""The width of a page, in inches."""
OTHERS = "#BDBDBD"
"""The colour of the losses that a crowded plot does not name."""

_MARKERS = "osD^vPX"

_SETTINGS: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "legend.fontsize": 6.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "axes.formatter.useoffset": False,
    "axes.titlelocation": "left",
    "figure.dpi": 200,
    "svg.hashsalt": "topk",  # so that the same figure has the same bytes
    "svg.fonttype": "path",  # so that text has the same width on every machine
    "pdf.fonttype": 42,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


@dataclass(frozen=True)
class Look:
    """How a loss is drawn.

    Args:
        colour: The colour as ``#rrggbb``.
        marker: A marker of matplotlib.
        line: A line style of matplotlib.
    """

    colour: str
    marker: str
    line: str = "-"


def looks(losses: Sequence[Loss]) -> dict[str, Look]:
    """Return how losses are drawn, by their labels.

    The look depends on the loss's name, so that it is the same in every plot and study. If a study has several variants
    of a loss, all have the same colour, with different markers and line styles. A loss that is not in the catalogue
    gets a colour and a marker from a hash of its name.

    Example:
        >>> looks([Loss("cross_entropy"), Loss("topk_hinge")])["topk_hinge"]
        Look(colour='#009E73', marker='s', line='-')
    """
    named: dict[str, list[str]] = {}
    for loss in losses:
        if loss.label not in named.setdefault(loss.name, []):
            named[loss.name].append(loss.label)
    return {
        label: look
        for name, labels in named.items()
        for label, look in zip(labels, _variants(name), strict=False)
    }


def _variants(name: str) -> Iterator[Look]:
    entry = LOSS_CATALOGUE.get(name)
    colour, marker = _hashed(name) if entry is None else (entry.colour, entry.marker)
    start = _MARKERS.index(marker)
    for turn in range(10_000):
        line = ("-", "--", ":", "-.")[turn // len(_MARKERS) % 4]
        yield Look(colour, _MARKERS[(start + turn) % len(_MARKERS)], line)


def _hashed(name: str) -> tuple[str, str]:
    drawn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return PALETTE[drawn % len(PALETTE)], _MARKERS[drawn // len(PALETTE) % len(_MARKERS)]


@contextmanager
def styled() -> Iterator[None]:
    """Apply the settings above to all figures that are drawn or written inside this context, and to no others."""
    import matplotlib as mpl  # noqa: PLC0415 - only plots need it

    with mpl.rc_context(dict(_SETTINGS)):  # type: ignore[arg-type]  # matplotlib types its keys as literals
        yield
