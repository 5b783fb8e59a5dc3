"""How far one search of an arm is: its ended trials as the protocol sees them, the best of them, and what is next."""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from topk_platform.specs import Arm, Phase, Scalar, Status, TrialRecord

__all__ = ["Ended", "SearchProgress", "Slot", "best"]


class Ended(NamedTuple):
    """One ended trial. It is a tuple to save memory: a driver holds hundreds of thousands of them.

    Args:
        number: The trial's number in its arm.
        values: The values that the sampler chose.
        status: How it ended.
        curve: The selection metric after each epoch that was validated.
        selected: The selection metric of the weights kept; by default the curve's last value.
    """

    number: int
    values: Mapping[str, Scalar]
    status: Status
    curve: Mapping[int, float] = MappingProxyType({})
    selected: float | None = None

    @property
    def objective(self) -> float:
        """The selection metric; NaN unless the trial was completed and the metric is known."""
        if self.status != "completed":
            return math.nan
        if self.selected is None:
            return self.curve[max(self.curve)] if self.curve else math.nan
        return self.selected

    @property
    def score(self) -> float:
        """The selection metric; 0 unless the trial was completed."""
        return self.objective if self.status == "completed" else 0.0

    @classmethod
    def from_record(cls, record: TrialRecord) -> Ended:
        """Return a record's trial as the protocol sees it."""
        trial, metric = record.trial, record.trial.arm.metric
        curve = {epoch.epoch: epoch.validation[metric] for epoch in record.epochs}
        return cls(trial.number, trial.values, record.status, curve, record.validation.get(metric))


def best(ended: Iterable[Ended]) -> Ended | None:
    """Return the completed trial with the highest objective, the earlier one on a tie; None if there is none.

    Example:
        >>> runs = [Ended(n, {}, "completed", {1: value}) for n, value in enumerate((0.8, 0.9, 0.9))]
        >>> best([*runs, Ended(3, {}, "pruned", {1: 1.0})]).number
        1
    """
    completed = [trial for trial in ended if trial.status == "completed"]
    return max(completed, key=lambda trial: (trial.objective, -trial.number), default=None)


Slot = tuple[Phase, int, int]
"""Phase, number and seed of a trial in an arm's plan."""

_Turn = tuple[int, int]
"""The order of a search's slots: the rank of a confirmation's seed, or 0 for a search trial; then the number."""


class _FreeSlots:
    """A set of slots, given by their turns in rising order, that knows the first one."""

    def __init__(self, turns: Iterable[_Turn]) -> None:
        self._heap = list(turns)
        self._there = set(self._heap)

    def __len__(self) -> int:
        return len(self._there)

    def add(self, turn: _Turn) -> None:
        """Add a slot, if it is not there yet."""
        if turn not in self._there:
            self._there.add(turn)
            heapq.heappush(self._heap, turn)

    def discard(self, turn: _Turn) -> None:
        """Remove a slot, if it is there."""
        self._there.discard(turn)

    @property
    def first(self) -> _Turn | None:
        """The slot whose turn is first, or None."""
        while self._heap and self._heap[0] not in self._there:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None


@dataclass
class SearchProgress:
    """One of an arm's searches, and the confirmations of the configuration that it chose.

    The slots that may start are kept up to date as trials start and end. So finding the next one takes the same time
    for any number of trials.

    Args:
        arm: The arm.
        index: The search's index.
        trials: How many search trials the arm's searches share out; 0 for an arm that searches nothing.
        seeds: How many seeds the arm's searches share out.
        searched: The arm's ended search trials by number; the arm adds to them.
        confirmed: The slots of the arm's ended confirmations; the arm adds to them too.

    Attributes:
        chosen: The configuration to confirm; None until the search has ended, or if no trial of it completed.
        confirming: Whether the search has ended.
    """

    arm: Arm
    index: int
    trials: int
    seeds: int
    searched: Mapping[int, Ended]
    confirmed: Container[Slot]

    def __post_init__(self) -> None:
        self._repeats, self._size = self.arm.repeats, self.arm.protocol.ensemble
        self._width = self.arm.protocol.width
        self.chosen: Ended | None = None
        self._whole = 0  # all trials at lower positions have ended
        self._length = self._repeats.length(self.index, self.trials)
        self._seed = self._repeats.search_seed(self.index)
        self._free = _FreeSlots((0, number) for number in self.numbers if number not in self.searched)
        self._unsearched, self._unconfirmed, self.confirming = len(self._free), 0, False
        self._seeds = self._repeats.seeds_of(self.index, self.seeds)
        # The last number that was looked at, and how many trials its suggestion needs.
        self._asked, self._needed = -1, 0
        self.note()

    @property
    def searching(self) -> bool:
        """Whether trials of the search have not ended yet."""
        return self._unsearched > 0

    @property
    def left(self) -> int:
        """How many of its trials have not ended, including running and open ones."""
        if self.confirming:
            return self._unconfirmed
        return self._unsearched + len(self._seeds)

    def _turn(self, slot: Slot) -> _Turn:
        _, number, seed = slot
        return self._repeats.rank_of(seed), number

    def known(self, number: int) -> range:
        """Return the positions of the trials on which a trial of the search depends."""
        return self.arm.protocol.known(self._repeats.position(number))

    def next_slot(self) -> Slot | None:
        """Return the first slot that may start now because the results that it depends on are there, or None."""
        turn = self._free.first
        if turn is None:
            return None
        rank, number = turn
        if rank:
            return "confirm", number, self._repeats.seed_at(rank)
        if number != self._asked:
            self._asked, self._needed = number, len(self.known(number))
        # A later number never needs fewer trials, so only the first one is checked.
        return ("search", number, self._seed) if self._needed <= self._whole else None

    def asks_for(self, slot: Slot) -> bool:
        """Return whether a slot is within the budget and has not ended."""
        phase, number, seed = slot
        if phase == "search":
            return self._repeats.holds(number, self.trials) and number not in self.searched
        return self._repeats.rank_of(seed) <= self.seeds and slot not in self.confirmed

    def take(self, slot: Slot) -> None:
        """Note that a trial starts."""
        self._free.discard(self._turn(slot))

    def free(self, slot: Slot) -> None:
        """Let a trial that was running start again."""
        self._free.add(self._turn(slot))

    def end(self, slot: Slot) -> None:
        """Note that a trial within the budget has ended. The arm has added its result before."""
        if slot[0] == "confirm":
            self._unconfirmed -= 1
        else:
            self._unsearched -= 1

    def note(self) -> None:
        """Update the state of the search after a trial has ended. At its end, choose the configuration to confirm."""
        while self._repeats.number_at(self.index, self._whole) in self.searched:
            self._whole += 1
        if not self.searching and not self.confirming:
            self.chosen, self.confirming = self.chosen_by_now, True
            self._free = _FreeSlots(sorted(map(self._turn, self.missing())))
            self._unconfirmed = len(self._free)

    @property
    def chosen_by_now(self) -> Ended | None:
        """The configuration that would be confirmed if the search ended now; None if no trial has completed."""
        if self.confirming:
            return self.chosen
        if not self.arm.is_searched:
            return Ended(0, {}, "completed", selected=math.nan)
        return best(self.searched[n] for n in self.numbers if n in self.searched)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The trials of the search, in order."""
        return self._repeats.numbers(self.index, self.trials)

    @property
    def ended(self) -> int:
        """How many confirmations within the budget have ended."""
        return len(self._seeds) - self._unconfirmed if self.chosen else 0

    @property
    def search_workers(self) -> int:
        """The maximum number of workers that the rest of the search can keep busy at once.

        Trials that train together take one worker. The next block may start while as many earlier blocks are running
        as the width allows.
        """
        return 0 if self.confirming else min(self._blocks(self._unsearched), self._at_once)

    @property
    def _at_once(self) -> int:
        """The maximum number of blocks of search trials that may run at once."""
        return (self._width - 1) // self._size + 1

    def _blocks(self, left: int) -> int:
        """Return the number of blocks in which the last ``left`` trials of the search train."""
        return math.ceil(self._length / self._size) - (self._length - left) // self._size if left else 0

    @property
    def confirm_workers(self) -> int:
        """The maximum number of workers that the rest of the confirmations can keep busy at once."""
        return math.ceil((self._unconfirmed if self.confirming else len(self._seeds)) / self._size)

    @property
    def search_rounds(self) -> int:
        """How many search trainings must run in sequence until all trials that have not started have ended."""
        if self.confirming:
            return 0
        return math.ceil(self._blocks(len(self._free)) / self._at_once)

    @property
    def confirm_rounds(self) -> int:
        """How many confirmations must run in sequence: at most one, because they wait only for the search."""
        return int(len(self._free if self.confirming else self._seeds) > 0)

    def missing(self) -> list[Slot]:
        """Return the slots that have not ended: search trials until the search has ended, then confirmations."""
        if not self.confirming:
            return [("search", number, self._seed) for number in self.numbers if number not in self.searched]
        if self.chosen is None:
            return []
        slots: list[Slot] = [("confirm", self.chosen.number, seed) for seed in self._seeds]
        return [slot for slot in slots if slot not in self.confirmed]
