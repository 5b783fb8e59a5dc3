"""What MLflow shows of the ledger's rows and of a study's tables."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.table.rows import Row, to_rows
from topk_platform.specs import Trial
from topk_platform.specs.described import described

__all__ = [
    "ARMS",
    "ArmResult",
    "Dataset",
    "Point",
    "curve",
    "group",
    "milliseconds",
    "parameters",
    "read_trials",
    "results",
    "results_of_arms",
    "started",
]

ARMS = "arms.json"
"""The file in a study's ``tables`` folder with the results of each arm."""

# The values by epoch that people plot. MLflow gets at most _VALUES of them per trial, because a database needs 300
# bytes for each. The ledger has all of them.
_PLOTTED = re.compile(r"train\.loss|learning_rate|validation\.top\d+")
_VALUES = 120

_LONGEST = 120  # characters of a group's name


class Point(NamedTuple):
    """The values of one epoch.

    Attributes:
        epoch: The epoch, counted from 1.
        milliseconds: When the epoch ended, in ms since 1970.
        values: The training loss, the learning rate and validation accuracies, by name.
    """

    epoch: int
    milliseconds: int
    values: dict[str, float]


class Dataset(NamedTuple):
    """A trial's data.

    Attributes:
        name: The dataset's name.
        options: Its options, as JSON.
        regime: The regime's name.
        fingerprint: The fingerprint of the data before conditions.
    """

    name: str
    options: str
    regime: str
    fingerprint: str


class ArmResult(NamedTuple):
    """The results of an arm.

    Attributes:
        name: The arm's name, ``regime/model/loss``.
        parameters: The confirmed configuration.
        metrics: For each test metric, the mean, the half-width of its 95 % interval, and the number of seeds.
        note: The same for people, in Markdown.
        dataset: The arm's data.
    """

    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, float]
    note: str
    dataset: Dataset


def results_of_arms(files: Mapping[str, str]) -> dict[str, ArmResult]:
    """Return the results of each arm in a study's tables, by the arm's identity."""
    arms = json.loads(files.get(ARMS, "{}"))
    return {
        arm_id: ArmResult(**{**values, "dataset": Dataset(**values["dataset"])})
        for arm_id, values in arms.items()
    }


def group(row: Row) -> str:
    """Return the name of a trial's configuration, which its seeds share: ``clean/mlp/ldam confirm 3: margin=0.5``."""
    values = {name: value for name, value in json.loads(row["values"]).items() if value is not None}
    texts = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values.items()
    ]
    name = f"{row['arm']} {row['phase']} {row['number']}"
    whole = f"{name}: {', '.join(texts)}" if texts else name
    return whole if len(whole) <= _LONGEST else f"{whole[: _LONGEST - 1]}…"


def parameters(trial: Trial) -> dict[str, str]:
    """Return the arm's settings; searched values replace those of the recipe."""
    searched = {name: value for name, value in trial.parameters.items() if value is not None}
    values = {**described(trial.arm), **searched}
    return {name: str(values[name]) for name in sorted(values)}


def results(row: Row, trial: Trial) -> dict[str, float]:
    """Return the results at the end: ``train_seconds``, the last validation, and ``test.NAME`` of confirmations."""
    chosen_by = f"validation.{trial.arm.metric}"
    names = ["train_seconds", chosen_by, *(name for name in row if name.startswith("test."))]
    return {name: row[name] for name in names if row.get(name) is not None}


def curve(clock: int, epochs: Sequence[Row]) -> Iterator[Point]:
    """Yield the values to plot for equally spaced epochs up to the last one.

    Args:
        clock: When the first epoch began, in ms.
        epochs: The epochs' rows.
    """
    names = [name for name in (epochs[0] if epochs else ()) if _PLOTTED.fullmatch(name)]
    points, count = min(_VALUES // max(len(names), 1), len(epochs)), len(epochs)
    for position, epoch in enumerate(sorted(epochs, key=lambda row: int(row["epoch"])), start=1):
        clock += round(1000 * (epoch["seconds"] or 0))
        if position * points // count > (position - 1) * points // count:
            yield Point(epoch["epoch"], clock, {n: epoch[n] for n in names if epoch[n] is not None})


def milliseconds(moment: datetime) -> int:
    """Return a time in milliseconds since 1970.

    Example:
        >>> milliseconds(datetime.fromtimestamp(1.5))
        1500
    """
    return int(moment.timestamp() * 1000)


def read_trials(ledger: Ledger, keys: Collection[str]) -> Iterator[tuple[Row, list[Row]]]:
    """Yield the row of each trial with these keys, and the rows of its epochs."""
    if not keys:
        return
    rows = [row for row in ledger.rows() if row["key"] in keys]
    epochs: dict[str, list[Row]] = {row["key"]: [] for row in rows}
    table = ledger.read("epochs")
    if table.num_columns:
        for epoch in to_rows(table.filter(pc.is_in(table["key"], pa.array(epochs, pa.string())))):
            epochs[epoch["key"]].append(epoch)
    for row in rows:
        yield row, epochs.pop(row["key"])


def started(ledger: Ledger) -> dict[str, int]:
    """Return when the trials of a ledger started, by key, in whole seconds since 1970."""
    table = ledger.read("trials", ["key", "started"])
    if not table.num_rows:  # an empty table has no columns
        return {}
    times = table["started"]
    seconds = times.cast(pa.timestamp("s", times.type.tz), safe=False).cast(pa.int64())
    return dict(zip(table["key"].to_pylist(), seconds.to_pylist(), strict=True))
