"""The results of each arm that count within a study's budget: the protocol's state of the arm, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from topk_platform.protocol import ArmProgress, Ended, Slot
from topk_platform.records.history import ArmHistory
from topk_platform.records.table.rows import Row
from topk_platform.specs import Arm, Study

__all__ = ["ArmResults", "results_of"]

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
        return [one and one._replace(values=dict(one.values)) for one in self.state.chosen]

    def searched(self) -> list[Row]:
        """Return the rows of the search trials that have ended and are within the budget."""
        return [row for number, row in self.history.search.items() if self.state.counts(number)]

    def confirmations(self) -> dict[int, Row]:
        """Return, by seed, the confirmation of the configuration that the seed's search has chosen so far.

        A confirmation may have any status. Seeds without a confirmation are missing.
        """
        confirmed, repeats = self.history.confirm, self.arm.repeats
        chosen = {s: self.chosen[repeats.search_of_seed(s)] for s in repeats.seeds(self.state.seeds)}
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
    return ArmProgress(history.arm, study.trials, study.seeds, searched, confirmed)
