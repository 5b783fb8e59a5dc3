"""What the ledger knows of each arm, for the search to go on from and for tables to select by."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from topk_platform.code_version import code_versions
from topk_platform.identity import Identity
from topk_platform.outcomes import Ended, chosen
from topk_platform.records.ledger import Ledger, Row, to_rows
from topk_platform.specs import Arm, Study

__all__ = ["ArmHistory", "Tally", "last_counted", "read_history"]

_SEARCHED = (
    *("key", "arm_id", "phase", "number", "seed", "status", "reason", "values", "train_seconds"),
    *("code_version", "dataset_fingerprint", "versions"),
)
"""What is asked of a search trial: of those there are many."""


@dataclass(frozen=True)
class Tally:
    """How many runs ended how.

    Example:
        >>> Tally.of(["completed", "diverged", "diverged"])
        Tally(completed=1, pruned=0, diverged=2, failed=0)
    """

    completed: int = 0
    pruned: int = 0
    diverged: int = 0
    failed: int = 0

    @classmethod
    def of(cls, statuses: Iterable[str]) -> Tally:
        """Return the tally of statuses."""
        return cls(**Counter(statuses))

    @property
    def ended(self) -> int:
        """How many there are in all."""
        return self.completed + self.pruned + self.diverged + self.failed

    @property
    def lost(self) -> int:
        """How many have no result though they were meant to: they diverged or failed."""
        return self.diverged + self.failed


@dataclass
class ArmHistory:
    """The rows of one arm that count: of the arm as it is defined now, and of one :class:`Identity`.

    Args:
        arm: The arm.
        search: Search rows by number.
        confirm: Confirmation rows by number and seed.
        curves: The selection metric by epoch, by key.
        outdated: How many rows of the arm do not count, by the reason: another program, other data, another machine.
    """

    arm: Arm
    search: dict[int, Row] = field(default_factory=dict)
    confirm: dict[tuple[int, int], Row] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    outdated: Counter[str] = field(default_factory=Counter)

    def ended(self) -> dict[int, Ended]:
        """Return the search trials as the search remembers them."""
        return {number: self._ended(row) for number, row in self.search.items()}

    def _ended(self, row: Row) -> Ended:
        chosen = json.loads(row["values"])
        return Ended(
            number=row["number"],
            values={name: chosen[name] for name in self.arm.loss.space},
            status=row["status"],
            curve=self.curves.get(row["key"], {}),
            selected=row.get(f"validation.{self.arm.metric}"),
        )

    def best(self, trials: int) -> Ended | None:
        """Return the best of the first ``trials`` search trials, or what stands for it where nothing is searched."""
        completed = [row for row in self.searched(trials) if row["status"] == "completed"]
        values = [self._objective(row) for row in completed]
        top = max(values, default=None)  # what most of many trials chose is never looked at
        return chosen(
            self.arm, (self._ended(r) for r, value in zip(completed, values, strict=True) if value == top)
        )

    def _objective(self, row: Row) -> float:
        found: float | None = row.get(f"validation.{self.arm.metric}")
        if found is None:
            curve = self.curves[row["key"]]
            found = curve[max(curve)]
        return found

    def searched(self, trials: int) -> list[Row]:
        """Return the first ``trials`` search trials, as far as they have ended."""
        return [row for number, row in self.search.items() if number < trials]

    def confirmations(self, trials: int, seeds: int) -> dict[int, Row]:
        """Return, by seed, the confirmations of the configuration that is best now, however they ended.

        Args:
            trials: How many search trials count.
            seeds: How many seeds count.
        """
        best = self.best(trials)
        if best is None:
            return {}
        rows = {seed: self.confirm.get((best.number, seed)) for seed in range(1, seeds + 1)}
        return {seed: row for seed, row in rows.items() if row is not None}

    def counting(self, trials: int, seeds: int) -> list[Row]:
        """Return the rows that a table of so many trials and seeds is made of."""
        return [*self.searched(trials), *self.confirmations(trials, seeds).values()]

    def rows(self) -> list[Row]:
        """Return all rows of the arm's identity."""
        return [*self.search.values(), *self.confirm.values()]


def last_counted(ledger: Ledger, study: Study) -> dict[str, Identity]:
    """Return which rows of a study's arms count: those of the code at hand, and of the last run's data and machine.

    Args:
        ledger: Where the last run noted its data and machine; an arm that it did not know may have any.
        study: Says which arms.

    Returns:
        By arm identity.
    """
    noted = ledger.identities()
    return {
        arm_id: replace(noted.get(arm_id, Identity()), code_version=code)
        for arm_id, code in code_versions(study).items()
    }


def read_history(
    ledger: Ledger, study: Study, identities: Mapping[str, Identity], *, curves: bool = True
) -> dict[str, ArmHistory]:
    """Return each arm's history by its identity.

    Args:
        ledger: Where the rows are.
        study: Says which arms count.
        identities: Which of an arm's rows count, by arm identity; all of an arm that it lacks.
        curves: Whether the search is to go on from it: a table needs no epoch.
    """
    histories = {study.arm_id(arm): ArmHistory(arm) for arm in study.arms}
    metrics = sorted({f"validation.{arm.metric}" for arm in study.arms})
    searched = ledger.read("trials", (*_SEARCHED, *metrics), where="phase = 'search'")
    confirmed = ledger.read("trials", without=("config",), where="phase = 'confirm'")
    excluded = _Excluded(identities)
    for row in chain(to_rows(searched), to_rows(confirmed)):
        if (history := histories.get(row["arm_id"])) is None:
            continue
        if reason := excluded(row):
            history.outdated[reason] += 1
        elif row["phase"] == "search":
            history.search[row["number"]] = row
        else:
            history.confirm[row["number"], row["seed"]] = row
    if curves:
        _add_curves(ledger, histories)
    return histories


class _Excluded:
    """Why a row does not count; asked once of all rows that are alike in what decides it."""

    def __init__(self, identities: Mapping[str, Identity]) -> None:
        self._identities = identities
        self._known: dict[tuple[str, ...], str] = {}

    def __call__(self, row: Row) -> str:
        kind = (row["arm_id"], row["code_version"], row["dataset_fingerprint"], row["versions"])
        if kind not in self._known:
            self._known[kind] = self._identities.get(kind[0], Identity()).excludes(row)
        return self._known[kind]


def _add_curves(ledger: Ledger, histories: Mapping[str, ArmHistory]) -> None:
    metrics = sorted({history.arm.metric for history in histories.values()})
    table = ledger.read(
        "epochs", ["key", "epoch", *(f"validation.{metric}" for metric in metrics)]
    ).to_pydict()
    for metric in metrics:
        curves: dict[str, dict[int, float]] = defaultdict(dict)
        column = table.get(f"validation.{metric}", [])
        for key, epoch, value in zip(table.get("key", []), table.get("epoch", []), column, strict=True):
            curves[key][epoch] = value
        for history in histories.values():
            if history.arm.metric == metric:
                history.curves = curves
