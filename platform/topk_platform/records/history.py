"""Reading a study's ledger: the rows that count for each arm, from which the search continues and tables are made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from types import MappingProxyType

import pyarrow as pa

from topk_platform.identity import Identity
from topk_platform.own_measures import Measured, of_scores
from topk_platform.protocol import ArmProgress, Ended, Slot, StudyProgress
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.rows import Curves, Late, Row, RowViews
from topk_platform.references import is_reference
from topk_platform.specs import Arm, Scalar, Study
from topk_platform.versions import versions_of

__all__ = [
    "ArmHistory",
    "ArmResults",
    "StudyRows",
    "last_counted",
    "progress_of",
    "read_history",
    "results_of",
]

_SEARCHED = (
    *("key", "arm_id", "phase", "number", "seed", "status", "reason", "values", "train_seconds"),
    *("code_version", "dataset_fingerprint", "versions"),
)
"""The columns that are read for search trials: only those in use, because there are many search trials."""

_KIND = ("arm_id", "code_version", "dataset_fingerprint", "versions")
"""The columns that decide whether a row counts."""

_NO_CURVE: Mapping[int, float] = MappingProxyType({})


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
            self._held = _Read.of(self.ledger, self._metrics, self._curves)
        return self._held

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

    def histories(
        self, study: Study, identities: Mapping[str, Identity] | None = None
    ) -> dict[str, ArmHistory]:
        """Return each arm's history, by arm ID.

        Args:
            study: The study that has the arms.
            identities: Which rows of an arm count, by arm ID; by default those of :func:`last_counted`.
        """
        counted = last_counted(self.ledger, study) if identities is None else identities
        histories = self.plain_histories({study.arm_id(arm): arm for arm in study.arms}, counted)
        scored = of_scores(study.measures)
        own = {name: scored.get(name) for name in study.measures if is_reference(name)}
        for history in histories.values() if own or study.measured else ():
            other_k = study.accuracies if study.topk_of(history.arm) != study.topk else ()
            ranks = Late(partial(read_all_ranks, self.ledger.store, list(history.confirm.values())))
            for slot, row in history.confirm.items():
                history.confirm[slot] = Measured(row, dict.fromkeys(other_k) | own, ranks)
        return histories

    def plain_histories(
        self, arms: Mapping[str, Arm], identities: Mapping[str, Identity]
    ) -> dict[str, ArmHistory]:
        """Return each arm's history by arm ID, as :meth:`histories` does, but only with the metrics that were recorded.

        Args:
            arms: The arms, by arm ID.
            identities: Which rows of an arm count, by arm ID. For arms that are missing here, all rows count.
        """
        rows = self._rows
        histories = {
            arm_id: ArmHistory(arm, curves=rows.curves.get(f"validation.{arm.metric}", {}))
            for arm_id, arm in arms.items()
        }

        @cache  # rows of one kind share one answer
        def excluded(kind: tuple[str, ...]) -> str | None:
            return identities.get(kind[0], Identity()).excludes(dict(zip(_KIND, kind, strict=True)))

        for views, is_search in ((rows.searched, True), (rows.confirmed, False)):
            kinds = zip(*map(views.column, _KIND), strict=True)
            for row, kind in zip(views, kinds, strict=True):
                if (history := histories.get(kind[0])) is None:
                    continue
                if (why := excluded(kind)) is not None:
                    history.outdated[why] += 1
                elif is_search:
                    history.search[row["number"]] = row
                else:
                    history.confirm[row["number"], row["seed"]] = row
        return histories


@dataclass(frozen=True)
class _Read:
    """The rows of a ledger at one version."""

    version: int
    searched: RowViews
    confirmed: RowViews
    curves: Mapping[str, Curves]

    @classmethod
    def of(cls, ledger: Ledger, metrics: Collection[str], curves: bool) -> _Read:
        if (opened := ledger.opened()) is None:
            return cls(-1, RowViews(pa.table({})), RowViews(pa.table({})), {})
        columns, wanted = (*_SEARCHED, *metrics), ["key", "epoch", *metrics]
        searched = ledger.read("trials", columns, where="phase = 'search'", opened=opened)
        confirmed = ledger.read("trials", without=("config",), where="phase = 'confirm'", opened=opened)
        epochs = ledger.read("epochs", wanted, opened=opened) if curves else pa.table({})
        # A ledger lacks the column of a metric that the study did not have in any earlier run.
        by_metric = {metric: Curves(epochs, metric) for metric in metrics if metric in epochs.column_names}
        return cls(opened.table.version(), RowViews(searched), RowViews(confirmed), by_metric)


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

    def ended_of(self, row: Row, *, alone: bool = False) -> Ended:
        """Return a row in the protocol's form. ``alone`` parses its values now, else on first use."""
        curve = self.curves.get(row["key"], _NO_CURVE)
        values = partial(_values, row, self.arm.loss.space)
        given = values() if alone else Late(values)
        return Ended(row["number"], given, row["status"], curve, row.get(f"validation.{self.arm.metric}"))

    def ended(self) -> dict[int, Ended]:
        """Return the search trials in the protocol's form, by number."""
        return {number: self.ended_of(row) for number, row in self.search.items()}

    def progress(self, study: Study, identity: Identity | None = None) -> ArmProgress:
        """Return the progress of the arm within a study's budget; with the identity of new trials, it holds no row."""
        ended = partial(self.ended_of, alone=identity is not None)
        searched = {number: ended(row) for number, row in self.search.items()}
        confirmed: dict[Slot, Ended] = {
            ("confirm", number, seed): ended(row) for (number, seed), row in self.confirm.items()
        }
        return ArmProgress(study, self.arm, identity or Identity(), searched, confirmed, self.outdated)

    def ended_seconds(self) -> list[float]:
        """Return the training seconds of completed and pruned trials. Each member of an ensemble has its whole time."""
        return [row["train_seconds"] for row in self.rows() if row["status"] in ("completed", "pruned")]

    def rows(self) -> list[Row]:
        """Return all rows of the arm's identity."""
        return [*self.search.values(), *self.confirm.values()]


def _values(row: Row, space: Collection[str]) -> dict[str, Scalar]:
    values = json.loads(row["values"])
    return {name: values[name] for name in space if name in values}


@dataclass(frozen=True)
class ArmResults:
    """The results of an arm that count within a study's budget: the protocol's state of the arm, and its rows.

    Args:
        history: The rows of the arm that count, of any budget.
        state: The progress of the arm within the budget.
    """

    history: ArmHistory
    state: ArmProgress

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
        return [ended and ended._replace(values=dict(ended.values)) for ended in self.state.chosen]

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


def last_counted(ledger: Ledger, study: Study) -> dict[str, Identity]:
    """Return which rows of a study's arms count: those of the current code and of the last run's data and machine.

    Args:
        ledger: The ledger in which the last run noted its data and machine. For an arm without a note, rows of any data
            and machine count.
        study: The study.

    Returns:
        The identity that counting rows have, by arm ID.
    """
    noted = ledger.identities()
    return {
        arm_id: replace(noted.get(arm_id, Identity()), code_version=code)
        for arm_id, code in versions_of(study).items()
    }


def read_history(
    ledger: Ledger, study: Study, identities: Mapping[str, Identity], *, curves: bool = True
) -> dict[str, ArmHistory]:
    """Return each arm's history, by arm ID, for callers that need it once; see :class:`StudyRows`."""
    return StudyRows(ledger, study.arms, curves=curves).histories(study, identities)


def progress_of(
    study: Study, identities: Mapping[str, Identity], histories: Mapping[str, ArmHistory]
) -> StudyProgress:
    """Return the progress of a study, to which a run adds the trials that end.

    Args:
        study: The study.
        identities: Which rows count, by arm ID.
        histories: Each arm's history of such rows, by arm ID.
    """
    return StudyProgress(history.progress(study, identities[arm_id]) for arm_id, history in histories.items())


def results_of(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, ArmResults]:
    """Return the results of each arm that count within a study's budget, by arm ID.

    Args:
        study: The study, which says how many trials and seeds there are.
        histories: The arms' histories, by arm ID.
    """
    return {arm_id: ArmResults(history, history.progress(study)) for arm_id, history in histories.items()}
