"""The values by epoch that go to MLflow's runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from topk_platform.records.table.rows import Row

__all__ = ["milliseconds", "points"]

# What a person plots by epoch, and how many values a trial has of it, of which a database makes 300 bytes each; the
# ledger has the rest.
_PLOTTED = re.compile(r"train\.loss|learning_rate|validation\.top\d+")
_VALUES = 120


def points(clock: int, epochs: Sequence[Row]) -> Iterator[tuple[str, float, int, int]]:
    """Yield the points to plot (name, value, time in ms, epoch), for equally spaced epochs up to the last one.

    Args:
        clock: When the first began, in ms.
        epochs: Their rows.
    """
    names = [name for name in (epochs[0] if epochs else ()) if _PLOTTED.fullmatch(name)]
    points, count = min(_VALUES // max(len(names), 1), len(epochs)), len(epochs)
    for place, epoch in enumerate(sorted(epochs, key=lambda item: int(item["epoch"])), start=1):
        clock += round(1000 * (epoch["seconds"] or 0))
        if place * points // count > (place - 1) * points // count:
            yield from ((n, epoch[n], clock, epoch["epoch"]) for n in names if epoch[n] is not None)


def milliseconds(moment: datetime) -> int:
    """Return a time as MLflow writes it.

    Example:
        >>> milliseconds(datetime.fromtimestamp(1.5))
        1500
    """
    return int(moment.timestamp() * 1000)
