"""The conversion of the ledger's rows into the trials and results that trackers take."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from topk_platform.errors import reason
from topk_platform.records.artifacts.files import read_artifact
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.store import Store
from topk_platform.records.table.rows import Row, to_rows
from topk_platform.specs import Arm, Scalar, Trial, canonical_json, digest
from topk_platform.specs.described import described
from topk_platform.tracking.tracker import ArmResult, Dataset, Extras, Point, StudyResult, TrackedTrial

__all__ = [
    "ARMS",
    "SearchTrials",
    "listed",
    "milliseconds",
    "read_trials",
    "started",
    "study_result",
    "tracked_trial",
]

SearchTrials = Literal["all", "best", "none"]
"""Which search trials go to trackers.

- ``all``: all of them, each as soon as it has ended;
- ``best``: those that were confirmed and, for an arm without confirmations, the best one so far; at the end of a run;
- ``none``: none of them.
"""

ARMS = "arms.json"
"""The file in a study's ``tables`` folder with the results of each arm."""

# The values by epoch that people plot. Trackers get at most _VALUES of them per trial, because a database needs 300
# bytes for each. The ledger has all of them.
_PLOTTED = re.compile(r"train\.loss|learning_rate|validation\.top\d+")
_VALUES = 120

_LONGEST = 120  # characters of a group's name; Weights & Biases allows 128
_LOG = logging.getLogger("topk_platform")


def tracked_trial(row: Row, epochs: Sequence[Row], store: Store, *, networks: bool = True) -> TrackedTrial:
    """Return an ended trial as trackers take it.

    Args:
        row: The trial's row.
        epochs: The rows of its epochs.
        store: The study's folder.
        networks: Whether a confirmation comes with its network.
    """
    trial = Trial.from_json(row["config"])
    regime = trial.arm.regime
    network = networks and row["phase"] == "confirm"
    names = ("key", "arm", "arm_id", "regime", "model", "loss", "phase", "number", "seed", "status", "reason")
    return TrackedTrial(
        **{name: row[name] for name in names},
        group=_group(row),
        parameters=_parameters(trial),
        metrics=_metrics(row, trial.arm),
        curve=tuple(_curve(milliseconds(row["started"]), epochs)),
        started=row["started"],
        ended=row["ended"],
        dataset=Dataset(
            regime.dataset, canonical_json(regime.options), regime.name, row["dataset_fingerprint"]
        ),
        config=row["config"],
        code_version=row["code_version"],
        network=partial(_network, store, row) if network else lambda: None,
    )


def _network(store: Store, row: Row) -> bytes | None:
    """Return the network of a confirmation; None if it is missing or, with a warning, if it is damaged."""
    try:
        return read_artifact(store, "network", row)
    except FileNotFoundError:
        return None
    except DamagedError as error:
        _LOG.warning("trackers get no network of %s: %s", row["arm"], error)
        return None


def _group(row: Row) -> str:
    """Return the name of a trial's configuration, which its seeds share: ``clean/mlp/ldam confirm 3: margin=0.5``."""
    values = {name: value for name, value in json.loads(row["values"]).items() if value is not None}
    texts = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values.items()
    ]
    name = f"{row['arm']} {row['phase']} {row['number']}"
    group = f"{name}: {', '.join(texts)}" if texts else name
    return group if len(group) <= _LONGEST else f"{group[: _LONGEST - 1]}…"


def _parameters(trial: Trial) -> dict[str, Scalar]:
    """Return the arm's settings; searched values replace those of the recipe."""
    searched = {name: value for name, value in trial.parameters.items() if value is not None}
    plain = (bool, int, float, str)
    chosen = {name: v if isinstance(v, plain) else str(v) for name, v in searched.items()}
    return dict(sorted({**described(trial.arm), **chosen}.items()))


def _metrics(row: Row, arm: Arm) -> dict[str, float]:
    chosen_by = [f"validation.{metric}" for metric in arm.metrics or (arm.metric,)]
    names = ["train_seconds", *chosen_by, *(name for name in row if name.startswith("test."))]
    return {name: row[name] for name in names if row.get(name) is not None}


def _curve(clock: int, epochs: Sequence[Row]) -> Iterator[Point]:
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


def read_trials(ledger: Ledger, keys: Collection[str], *, networks: bool = True) -> Iterator[TrackedTrial]:
    """Yield trials of a ledger.

    Args:
        ledger: The ledger.
        keys: The trials' keys.
        networks: Whether confirmations come with their networks.
    """
    if not keys:
        return
    rows = [row for row in ledger.rows() if row["key"] in keys]
    epochs: dict[str, list[Row]] = {row["key"]: [] for row in rows}
    table = ledger.read("epochs")
    if table.num_columns:
        for epoch in to_rows(table.filter(pc.is_in(table["key"], pa.array(epochs, pa.string())))):
            epochs[epoch["key"]].append(epoch)
    for row in rows:
        yield tracked_trial(row, epochs.pop(row["key"]), ledger.store, networks=networks)


def started(ledger: Ledger) -> dict[str, int]:
    """Return when the trials of a ledger started, by key, in whole seconds since 1970."""
    table = ledger.read("trials", ["key", "started"])
    if not table.num_rows:  # an empty table has no columns
        return {}
    times = table["started"]
    seconds = times.cast(pa.timestamp("s", times.type.tz), safe=False).cast(pa.int64())
    return dict(zip(table["key"].to_pylist(), seconds.to_pylist(), strict=True))


def listed(ledger: Ledger, search: SearchTrials) -> tuple[set[str], set[str]]:
    """Return the keys of the trials that trackers show, and of those that they do not.

    Args:
        ledger: The ledger.
        search: Which search trials are shown; confirmations always are.
    """
    if search == "all":
        return set(ledger.keys()), set()
    rows = ledger.rows()
    chosen = {row["key"] for row in rows if row["phase"] == "confirm"}
    if search == "best":
        chosen.update(_best(rows))
    return chosen, {row["key"] for row in rows} - chosen


def _best(rows: Sequence[Row]) -> Iterator[str]:
    confirmed = {(row["arm_id"], row["number"]) for row in rows if row["phase"] == "confirm"}
    arms = {arm_id for arm_id, _ in confirmed}
    leading: dict[str, tuple[float, str]] = {}
    metrics: dict[str, str] = {}
    for row in rows:
        arm_id = row["arm_id"]
        if row["phase"] != "search":
            continue
        if (arm_id, row["number"]) in confirmed:
            yield row["key"]
        elif arm_id not in arms and row["status"] == "completed":
            if arm_id not in metrics:
                metrics[arm_id] = f"validation.{Trial.from_json(row['config']).arm.metric}"
            value = row[metrics[arm_id]]
            if value is not None and (arm_id not in leading or value > leading[arm_id][0]):
                leading[arm_id] = value, row["key"]
    yield from (key for _, key in leading.values())


def study_result(files: Mapping[str, str], extras: Callable[[], Extras] | None = None) -> StudyResult:
    """Return a study's tables as trackers take them.

    Args:
        files: The text files of its ``tables`` folder, by name.
        extras: A function that makes the report, the plots and graphs; it is called once for all trackers.
    """
    arms = {
        arm_id: _arm_result(arm_id, values) for arm_id, values in json.loads(files.get(ARMS, "{}")).items()
    }
    return StudyResult(files, digest(files), arms, None if extras is None else _Once(extras))


def _arm_result(arm_id: str, values: Mapping[str, Any]) -> ArmResult:
    # In tables of earlier versions arms have no names.
    return ArmResult(**{"name": arm_id, **values, "dataset": Dataset(**values["dataset"])})


class _Once:
    """A function that makes the extras once, when the first tracker asks for them; a failure is a warning."""

    def __init__(self, make: Callable[[], Extras]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: list[Extras | None] = []

    def __call__(self) -> Extras | None:
        with self._lock:
            if not self._made:
                self._made.append(self._tried())
            return self._made[0]

    def _tried(self) -> Extras | None:
        try:
            return self._make()
        except Exception as error:  # noqa: BLE001 - a plot or a user's network may raise any error, and the study is done
            _LOG.warning("trackers get no report and no plots: %s", reason(error))
            return None
