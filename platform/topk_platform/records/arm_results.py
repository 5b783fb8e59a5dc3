"""The results of each arm that count within a study's budget: the protocol's state of the arm, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

from topk_platform.protocol import ArmProgress, Ended, Slot, hold_races
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
    def last(self) -> int:
        """How many seeds count: fewer than the study's if the arm dropped out of a race."""
        return self.state.last

    @property
    def left(self) -> int:
        """How many trials of the arm have not ended. Confirmations that cannot run are not counted."""
        return self.state.left

    @cached_property
    def chosen(self) -> list[tuple[Ended, ...]]:
        """The configurations that each search has chosen so far, the main one first; empty if no trial completed."""
        return [tuple(e._replace(values=dict(e.values)) for e in chosen) for chosen in self.state.chosen]

    def searched(self) -> list[Row]:
        """Return the rows of the search trials that have ended and are within the budget."""
        return [row for number, row in self.history.search.items() if self.state.counts(number)]

    def confirmations(self) -> dict[int, Row]:
        """Return, by seed, the confirmation of the main configuration that the seed's search has chosen so far.

        A confirmation may have any status. Seeds without a confirmation are missing.
        """
        return {seed: rows[0] for seed, rows in self._confirmed(1).items() if rows}

    def confirmed_points(self) -> dict[int, list[Row]]:
        """Return, by seed, the confirmations of the configurations that the seed's search chose, the main one first."""
        return self._confirmed(self.state.points)

    def _confirmed(self, points: int) -> dict[int, list[Row]]:
        """Return, by seed, the confirmations of the first configurations that the seed's search has chosen."""
        confirmed, repeats = self.history.confirm, self.arm.repeats
        chosen = {seed: self.chosen[repeats.search_of_seed(seed)] for seed in repeats.seeds(self.last)}
        slots = {seed: [(ended.number, seed) for ended in mine[:points]] for seed, mine in chosen.items()}
        return {seed: [confirmed[slot] for slot in mine if slot in confirmed] for seed, mine in slots.items()}

    def counting(self) -> list[Row]:
        """Return the rows that a table is made of: search trials, then confirmations."""
        return [*self.searched(), *chain(*self.confirmed_points().values())]


def results_of(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, ArmResults]:
    """Return the results of each arm that count within a study's budget and races, by arm identity.

    Args:
        study: The study, which says how many trials and seeds there are, and which arms race.
        histories: The arms' histories, by arm identity.
    """
    results = {arm_id: ArmResults(history, _state(study, history)) for arm_id, history in histories.items()}
    hold_races(study, {arm_id: arm.state for arm_id, arm in results.items()})
    return results


def _state(study: Study, history: ArmHistory) -> ArmProgress:
    searched = _Glances(history.search, history.glance)
    confirmed = _Glances(history.slots(), history.glance)
    return ArmProgress(history.arm, study.trials, study.seeds, study.points(history.arm), searched, confirmed)
