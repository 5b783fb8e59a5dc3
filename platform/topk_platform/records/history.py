"""What is recorded of each arm. The search continues from it, and tables are made of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import TypeVar

from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress, Ended, Slot, StudyProgress
from topk_platform.records.rows import Late, Row
from topk_platform.specs import Arm, Scalar, Study

__all__ = ["ArmHistory", "ArmResults", "progress_of", "results_of"]

_NO_CURVE: Mapping[int, float] = MappingProxyType({})


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


def progress_of(
    study: Study, identities: Mapping[str, Identity], histories: Mapping[str, ArmHistory]
) -> StudyProgress:
    """Return the progress of a study, to which a run adds the trials that end.

    Args:
        study: The study.
        identities: Which rows count, by arm identity.
        histories: Each arm's history of such rows, by arm identity.
    """
    return StudyProgress(
        ArmProgress(
            study=study,
            arm=history.arm,
            identity=identities[arm_id],
            searched=history.ended(),
            confirmed=history.ended_confirmations(),
            outdated=history.outdated,
        )
        for arm_id, history in histories.items()
    )


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


def results_of(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, ArmResults]:
    """Return the results of each arm that count within a study's budget, by arm identity.

    Args:
        study: The study, which says how many trials and seeds there are.
        histories: The arms' histories, by arm identity.
    """
    return {arm_id: ArmResults(history, _state(study, history)) for arm_id, history in histories.items()}


def _state(study: Study, history: ArmHistory) -> ArmProgress:
    searched = _Glances(history.search, history.glance)
    confirmed = _Glances(history.slots(), history.glance)
    return ArmProgress(study, history.arm, Identity(), searched, confirmed)
