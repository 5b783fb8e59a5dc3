"""Each arm's rows in the ledger. The search continues from them, and tables are made of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard, Ended, Slot
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.rows import Late, Row, RowViews
from topk_platform.specs import Arm, Scalar, Study
from topk_platform.versions import versions_of

__all__ = ["ArmHistory", "ArmResults", "Curves", "StudyRows", "last_counted", "read_history", "results_of"]

_Curve = Mapping[int, float]


class Curves(Mapping[str, _Curve]):
    """The values of each trial by epoch, for each trial's key.

    A study has twenty or more epochs per trial, and a search uses only the curves of the arms that it continues. So a
    curve is a range in two columns until it is first used. Then it is converted to Python's numbers.

    Args:
        table: The columns ``key`` and ``epoch`` and those of the metrics, ordered by key and epoch.
        metric: The column of the values.

    Example:
        >>> rows = {"key": ["a", "a", "b"], "epoch": [1, 2, 1], "validation.top5": [0.5, 0.75, 0.25]}
        >>> curves = Curves(pa.table(rows), "validation.top5")
        >>> dict(curves["a"]), curves["b"] == {1: 0.25}, "c" in curves, len(curves)
        ({1: 0.5, 2: 0.75}, True, False, 2)
    """

    def __init__(self, table: pa.Table, metric: str) -> None:
        self._columns = tuple(table[name].combine_chunks() for name in ("epoch", metric) if table.num_rows)
        self._spans: dict[str, tuple[int, int]] = {}
        begin = 0
        for chunk in table["key"].chunks if table.num_rows else ():
            runs = pc.run_end_encode(chunk, run_end_type=pa.int64())
            ends = [begin + end for end in runs.run_ends.to_pylist()]
            for key, start, end in zip(runs.values.to_pylist(), [begin, *ends], ends, strict=False):
                # A chunk may end within a curve.
                self._spans[key] = (self._spans.get(key, (start, end))[0], end)
            begin += len(chunk)

    def __getitem__(self, key: str) -> _Curve:
        start, end = self._spans[key]
        return Late(lambda: dict(zip(*(one[start:end].to_pylist() for one in self._columns), strict=True)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)


_NO_CURVE: Mapping[int, float] = MappingProxyType({})

_SEARCHED = (
    *("key", "arm_id", "phase", "number", "seed", "status", "reason", "values", "train_seconds"),
    *("code_version", "dataset_fingerprint", "versions"),
)
"""The columns that are read for search trials: only those in use, because there are many search trials."""


@dataclass
class ArmHistory:
    """The rows of one arm that count: those of the arm as it is defined now, with one :class:`Identity`.

    Args:
        arm: The arm.
        search: Search rows by number.
        confirm: Confirmation rows by number and seed.
        curves: The selection metric by epoch, for each trial's key.
        outdated: How many rows of the arm do not count, by reason: other code, other data, another machine.
    """

    arm: Arm
    search: dict[int, Row] = field(default_factory=dict)
    confirm: dict[tuple[int, int], Row] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    outdated: Counter[str] = field(default_factory=Counter)

    def ended(self) -> dict[int, Ended]:
        """Return the search trials in the protocol's form, by number."""
        return {number: self.ended_of(row) for number, row in self.search.items()}

    def ended_confirmations(self) -> dict[Slot, Ended]:
        """Return the confirmations in the protocol's form, by slot."""
        return {slot: self.ended_of(row) for slot, row in self.slots().items()}

    def slots(self) -> dict[Slot, Row]:
        """Return the confirmations by slot."""
        return {("confirm", number, seed): row for (number, seed), row in self.confirm.items()}

    def ended_of(self, row: Row) -> Ended:
        """Return one of the arm's rows in the protocol's form."""
        return self._ended(row, _values(row, self.arm.loss.space))

    def glance(self, row: Row) -> Ended:
        """Return one of the arm's rows in the protocol's form. Its values are parsed only when they are accessed."""
        return self._ended(row, Late(partial(_values, row, self.arm.loss.space)))

    def _ended(self, row: Row, values: Mapping[str, Scalar]) -> Ended:
        return Ended(
            row["number"],
            values,
            row["status"],
            self.curves.get(row["key"], _NO_CURVE),
            row.get(f"validation.{self.arm.metric}"),
        )

    def confirmed(self) -> Iterator[Ended]:
        """Yield the confirmations in the protocol's form. Their values are parsed only when they are accessed."""
        return map(self.glance, self.confirm.values())

    def ended_seconds(self) -> list[float]:
        """Return the training seconds of completed and pruned trials. Each member of an ensemble has its whole time."""
        return [row["train_seconds"] for row in self.rows() if row["status"] in ("completed", "pruned")]

    def rows(self) -> list[Row]:
        """Return all rows of the arm's identity."""
        return [*self.search.values(), *self.confirm.values()]


def _values(row: Row, space: Collection[str]) -> dict[str, Scalar]:
    values = json.loads(row["values"])
    return {name: values[name] for name in space if name in values}


def last_counted(ledger: Ledger, study: Study) -> dict[str, Identity]:
    """Return which rows of a study's arms count: those of the current code and of the last run's data and machine.

    Args:
        ledger: The ledger in which the last run noted its data and machine. For an arm without a note, rows of any data
            and machine count.
        study: The study.

    Returns:
        The identity that counting rows have, by arm identity.
    """
    noted = ledger.identities()
    return {
        arm_id: replace(noted.get(arm_id, Identity()), code_version=code)
        for arm_id, code in versions_of(study).items()
    }


@dataclass(frozen=True)
class _Read:
    """The rows of a ledger at one version."""

    version: int
    searched: RowViews
    confirmed: RowViews
    curves: Mapping[str, Curves]


class StudyRows:
    """The rows of a study's ledger, read once, on first use.

    The rows that count can then be selected for any identities and any budget.

    Args:
        ledger: The ledger that holds the rows.
        arms: The arms. Their selection metrics are read.
        curves: Whether to read epochs, which the search needs and tables do not.
    """

    def __init__(self, ledger: Ledger, arms: Iterable[Arm], *, curves: bool = True) -> None:
        self.ledger, self._curves = ledger, curves
        self._metrics = sorted({f"validation.{arm.metric}" for arm in arms})
        self._held: _Read | None = None

    @property
    def _rows(self) -> _Read:
        if self._held is None:
            self._held = self._read()
        return self._held

    def _read(self) -> _Read:
        ledger, metrics = self.ledger, self._metrics
        version = ledger.version
        searched = ledger.read("trials", (*_SEARCHED, *metrics), where="phase = 'search'")
        confirmed = ledger.read("trials", without=("config",), where="phase = 'confirm'")
        epochs = ledger.read("epochs", ["key", "epoch", *metrics]) if self._curves else pa.table({})
        # A ledger lacks the column of a metric that the study did not have in any earlier run.
        curves = {metric: Curves(epochs, metric) for metric in metrics if metric in epochs.column_names}
        return _Read(version, RowViews(searched), RowViews(confirmed), curves)

    def refresh(self) -> None:
        """Drop the rows if the ledger has changed, so that the next use reads them again."""
        if self._held is not None and self._held.version != self.ledger.version:
            self._held = None

    def release(self) -> None:
        """Free the memory. A later use reads the rows again, without epochs."""
        self._held, self._curves = None, False

    @property
    def keys(self) -> list[str]:
        """The keys of all trials, counted or not."""
        return [*self._rows.searched.column("key"), *self._rows.confirmed.column("key")]

    def histories(self, study: Study, identities: Mapping[str, Identity]) -> dict[str, ArmHistory]:
        """Return each arm's history, by arm identity.

        Args:
            study: The study that has the arms.
            identities: Which rows of an arm count, by arm identity. For arms that are missing here, all rows count.
        """
        histories = self.histories_of({study.arm_id(arm): arm for arm in study.arms}, identities)
        for history in histories.values() if study.measured else ():
            if study.topk_of(history.arm) != study.topk:
                self._complete(history, study.accuracies)
        return histories

    def _complete(self, history: ArmHistory, accuracies: Collection[str]) -> None:
        """Add to an arm's confirmations the test accuracies that were not recorded, from the ranks."""
        ranks = read_all_ranks(self.ledger.store, history.confirm.values())
        for slot, row in history.confirm.items():
            kept = ranks.get(row["key"])
            missing = [name for name in accuracies if row.get(f"test.{name}") is None]
            counted = {f"test.{name}": None if kept is None else kept.accuracy(name) for name in missing}
            history.confirm[slot] = {**row, **counted}

    def histories_of(
        self, arms: Mapping[str, Arm], identities: Mapping[str, Identity]
    ) -> dict[str, ArmHistory]:
        """Return each arm's history, by arm identity, as :meth:`histories` does.

        Args:
            arms: The arms, by arm identity.
            identities: As for :meth:`histories`.
        """
        rows = self._rows
        histories = {
            arm_id: ArmHistory(arm, curves=rows.curves.get(f"validation.{arm.metric}", {}))
            for arm_id, arm in arms.items()
        }
        reason = _excluding(identities)
        for history, row, number, _ in _counted(rows.searched, histories, reason):
            history.search[number] = row
        for history, row, number, seed in _counted(rows.confirmed, histories, reason):
            history.confirm[number, seed] = row
        return histories


def read_history(
    ledger: Ledger, study: Study, identities: Mapping[str, Identity], *, curves: bool = True
) -> dict[str, ArmHistory]:
    """Return each arm's history, by arm identity, for callers that need it once; see :class:`StudyRows`.

    Args:
        ledger: The ledger that holds the rows.
        study: The study that has the arms.
        identities: Which rows of an arm count, by arm identity. For arms that are missing here, all rows count.
        curves: Whether to read epochs, which the search needs and tables do not.
    """
    return StudyRows(ledger, study.arms, curves=curves).histories(study, identities)


_KIND = ("arm_id", "code_version", "dataset_fingerprint", "versions")
"""The columns that decide whether a row counts."""


def _counted(
    rows: RowViews, histories: Mapping[str, ArmHistory], reason: Callable[[tuple[str, ...]], str]
) -> Iterator[tuple[ArmHistory, Row, int, int]]:
    """Yield the rows that count, with their arm's history, number and seed; count the other rows by reason."""
    kinds = zip(*(rows.column(name) for name in _KIND), strict=True)
    for row, kind, number, seed in zip(rows, kinds, rows.column("number"), rows.column("seed"), strict=True):
        if (history := histories.get(kind[0])) is None:
            continue
        if why := reason(kind):
            history.outdated[why] += 1
        else:
            yield history, row, number, seed


def _excluding(identities: Mapping[str, Identity]) -> Callable[[tuple[str, ...]], str]:
    """Return a function that says why rows do not count, empty if they do; rows of one kind share one answer."""

    @cache
    def reason(kind: tuple[str, ...]) -> str:
        return identities.get(kind[0], Identity()).excludes(dict(zip(_KIND, kind, strict=True)))

    return reason


_Key = TypeVar("_Key", int, Slot)


class _Glances(Mapping[_Key, Ended]):
    """Rows in the protocol's form. Each row is converted when it is accessed."""

    def __init__(self, rows: Mapping[_Key, Row], glance: Callable[[Row], Ended]) -> None:
        self._rows: Mapping[_Key, Row] = rows
        self._glance = glance

    def __getitem__(self, key: _Key) -> Ended:
        return self._glance(self._rows[key])

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True)
class ArmResults:
    """The results of an arm that count within a study's budget: the protocol's state of the arm, and its rows.

    Args:
        history: All rows of the arm.
        state: The progress of the arm within the budget.
    """

    history: ArmHistory
    state: ArmBoard

    @property
    def arm(self) -> Arm:
        """The arm."""
        return self.history.arm

    @property
    def left(self) -> int:
        """How many trials of the arm have not ended. Confirmations that cannot run are not counted."""
        return self.state.left

    @cached_property
    def chosen(self) -> list[Ended | None]:
        """The configuration that each search has chosen so far; None if no trial of it completed."""
        return [one and one._replace(values=dict(one.values)) for one in self.state.chosen]

    def searched(self) -> list[Row]:
        """Return the rows of the search trials that have ended and are within the budget."""
        return [row for number, row in self.history.search.items() if self.state.counts(number)]

    def confirmations(self) -> dict[int, Row]:
        """Return, by seed, the confirmation of the configuration that the seed's search has chosen so far.

        A confirmation may have any status. Seeds without a confirmation are missing.
        """
        confirmed, repeats = self.history.confirm, self.arm.repeats
        chosen = {s: self.chosen[repeats.search_of_seed(s)] for s in repeats.seeds(self.state.study.seeds)}
        slots = {seed: (ended.number, seed) for seed, ended in chosen.items() if ended}
        return {seed: confirmed[slot] for seed, slot in slots.items() if slot in confirmed}

    def counting(self) -> list[Row]:
        """Return the rows that a table is made of: search trials, then confirmations."""
        return [*self.searched(), *self.confirmations().values()]


def results_of(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, ArmResults]:
    """Return the results of each arm that count within a study's budget, by arm identity.

    Args:
        study: The study, which says how many trials and seeds there are.
        histories: The arms' histories, by arm identity.
    """
    return {arm_id: ArmResults(history, _state(study, history)) for arm_id, history in histories.items()}


def _state(study: Study, history: ArmHistory) -> ArmBoard:
    searched = _Glances(history.search, history.glance)
    confirmed = _Glances(history.slots(), history.glance)
    return ArmBoard(study, history.arm, Identity(), searched, confirmed)
