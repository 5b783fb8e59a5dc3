"""One of an arm's searches with its confirmations: which trials have ended, and which may start now."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass

from topk_platform.protocol.ended import Ended, chosen
from topk_platform.protocol.free_slots import FreeSlots, Turn
from topk_platform.specs import Arm, Phase

__all__ = ["Lane", "Slot"]

Slot = tuple[Phase, int, int]
"""Phase, number and seed of a trial in an arm's plan."""


@dataclass
class Lane:
    """One of an arm's searches, and the confirmations of the configurations that it chose.

    The slots that may start are kept up to date as trials start and end. So finding the next one takes the same time
    for any number of trials.

    Args:
        arm: The arm.
        index: The search's index.
        trials: How many search trials the arm's searches share out; 0 for an arm that searches nothing.
        seeds: How many seeds the arm's searches share out.
        points: The maximum number of configurations that are confirmed.
        searched: The arm's ended search trials by number; the arm adds to them.
        confirmed: The slots of the arm's ended confirmations; the arm adds to them too.

    Attributes:
        chosen: The configurations to confirm, the main one first; none until the search has ended.
        confirming: Whether the search has ended.
    """

    arm: Arm
    index: int
    trials: int
    seeds: int
    points: int
    searched: Mapping[int, Ended]
    confirmed: Container[Slot]

    def __post_init__(self) -> None:
        self._repeats, self._size = self.arm.repeats, self.arm.protocol.ensemble
        self._width = self.arm.protocol.width
        self.chosen: tuple[Ended, ...] = ()
        self._whole = 0  # all trials at lower positions have ended
        self._length = self._repeats.length(self.index, self.trials)
        self._own = self._repeats.own(self.index, self.trials)
        self._shares = self._length > 0 and self._first not in self._own
        self._free = FreeSlots((0, number) for number in self._own if number not in self.searched)
        self._unsearched, self._unconfirmed, self.confirming = len(self._free), 0, False
        self._until = self._last = self.seeds
        # The last number that was looked at, and how many trials its suggestion needs.
        self._asked, self._needed = -1, 0
        self._limit()
        self.note()

    @property
    def searching(self) -> bool:
        """Whether trials of the search have not ended yet."""
        return self._unsearched > 0 or (self._length > 0 and self._first not in self.searched)

    @property
    def _first(self) -> int:
        return self._repeats.number_at(self.index, 0)

    @property
    def left(self) -> int:
        """How many of its own trials have not ended, including running and open ones."""
        if self.confirming:
            return self._unconfirmed
        return self._unsearched + self._to_confirm

    def _limit(self) -> None:
        self._seeds = self._repeats.seeds_of(self.index, self._last)
        self._to_confirm = len(self._seeds) * self.points  # while the search goes on, no more is known

    def _turn(self, slot: Slot) -> Turn:
        _, number, seed = slot
        return self._repeats.rank_of(seed), number

    def limit(self, until: int, last: int) -> None:
        """Let only seeds with a rank up to ``until`` start now, and never any with a rank above ``last``."""
        self._until = until
        if last == self._last:
            return
        self._last = last
        self._limit()
        if self.confirming:
            self._free.keep(lambda turn: turn[0] <= last)
            self._unconfirmed = len(self.missing())

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
            return ("confirm", number, self._repeats.seed_at(rank)) if rank <= self._until else None
        if number != self._asked:
            self._asked, self._needed = number, len(self.known(number))
        # A later number never needs fewer trials, so only the first one is checked.
        return ("search", number, 0) if self._needed <= self._whole else None

    def asks_for(self, slot: Slot) -> bool:
        """Return whether a slot is within the budget and has not ended."""
        phase, number, seed = slot
        if phase == "search":
            return self._repeats.holds(number, self.trials) and number not in self.searched
        return self._repeats.rank_of(seed) <= self._last and slot not in self.confirmed

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
        """Update the state of the search after a trial has ended. At its end, choose the configurations to confirm."""
        while self._repeats.number_at(self.index, self._whole) in self.searched:
            self._whole += 1
        if not self.searching and not self.confirming:
            self._confirm()

    def _confirm(self) -> None:
        self.confirming, self.chosen = True, self._choice()
        self._free = FreeSlots(sorted(map(self._turn, self.missing())))
        self._unconfirmed = len(self._free)

    @property
    def chosen_by_now(self) -> tuple[Ended, ...]:
        """The configurations that would be confirmed if the search ended now; empty if no trial has completed."""
        return self.chosen if self.confirming else self._choice()

    def _choice(self) -> tuple[Ended, ...]:
        ended = (self.searched[n] for n in self.numbers if n in self.searched)
        return chosen(self.arm, ended, self.points)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The trials of the search, in order; the first one may be shared by all searches."""
        return self._repeats.numbers(self.index, self.trials)

    @property
    def ended(self) -> int:
        """How many confirmations within the budget have ended."""
        return len(self.chosen) * len(self._seeds) - self._unconfirmed

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
        # The first block of a later search may lack the shared trial. Then trials that need only that one can start.
        short = self._size > 1 and self._shares
        return (self._width - (not short)) // self._size + 1

    def _blocks(self, left: int) -> int:
        """Return the number of blocks in which the last ``left`` trials of the search train."""
        return math.ceil(self._length / self._size) - (self._length - left) // self._size if left else 0

    @property
    def confirm_workers(self) -> int:
        """The maximum number of workers that the rest of the confirmations can keep busy at once."""
        if not self.confirming:
            seeds = [seed for seed in self._seeds if self._repeats.rank_of(seed) <= self._until]
            return math.ceil(len(seeds) / self.arm.protocol.ensemble) * self.points
        left = [slot for slot in self.missing() if self._turn(slot)[0] <= self._until]
        return math.ceil(len(left) / self.arm.protocol.ensemble)

    @property
    def search_rounds(self) -> int:
        """How many search trainings must run in sequence until all trials that have not started have ended."""
        if self.confirming:
            return 0
        return math.ceil(self._blocks(len(self._free)) / self._at_once)

    @property
    def confirm_rounds(self) -> int:
        """How many confirmations must run in sequence: at most one, because they wait only for the search."""
        return int((len(self._free) if self.confirming else self._to_confirm) > 0)

    def missing(self) -> list[Slot]:
        """Return the slots that have not ended: search trials until the search has ended, then confirmations."""
        if not self.confirming:
            return [("search", number, 0) for number in self._own if number not in self.searched]
        slots: list[Slot] = [("confirm", e.number, seed) for seed in self._seeds for e in self.chosen]
        return [slot for slot in slots if slot not in self.confirmed]
