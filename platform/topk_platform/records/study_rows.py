"""The rows of a study's ledger, read once, and divided into those that count and those that do not, by reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from topk_platform.identity import Identity
from topk_platform.records.history import ArmHistory
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.rows import Late, Row, RowViews
from topk_platform.specs import Arm, Study
from topk_platform.versions import versions_of

__all__ = ["Curves", "StudyRows", "last_counted", "read_history"]

_SEARCHED = (
    *("key", "arm_id", "phase", "number", "seed", "status", "reason", "values", "train_seconds"),
    *("code_version", "dataset_fingerprint", "versions"),
)
"""The columns that are read for search trials: only those in use, because there are many search trials."""


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
        return Late(
            lambda: dict(zip(*(column[start:end].to_pylist() for column in self._columns), strict=True))
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)


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
    rows: RowViews, histories: Mapping[str, ArmHistory], reason: Callable[[tuple[str, ...]], str | None]
) -> Iterator[tuple[ArmHistory, Row, int, int]]:
    """Yield the rows that count, with their arm's history, number and seed; count the other rows by reason."""
    kinds = zip(*(rows.column(name) for name in _KIND), strict=True)
    for row, kind, number, seed in zip(rows, kinds, rows.column("number"), rows.column("seed"), strict=True):
        if (history := histories.get(kind[0])) is None:
            continue
        why = reason(kind)
        if why is None:
            yield history, row, number, seed
        else:
            history.outdated[why] += 1


def _excluding(identities: Mapping[str, Identity]) -> Callable[[tuple[str, ...]], str | None]:
    """Return a function that says why rows do not count, or None; rows of one kind share one answer."""

    @cache
    def reason(kind: tuple[str, ...]) -> str | None:
        return identities.get(kind[0], Identity()).excludes(dict(zip(_KIND, kind, strict=True)))

    return reason
