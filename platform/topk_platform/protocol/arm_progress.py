"""What has ended of one arm, and what follows from it: choices and what is left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from topk_platform.protocol.ended import Ended
from topk_platform.protocol.lane import Lane, Slot
from topk_platform.specs import Arm

__all__ = ["ArmProgress"]


class ArmProgress:
    """What has ended of one arm, within a budget.

    Tables and the status build this from the recorded rows. A run keeps it up to date trial by trial, as an
    :class:`~topk_platform.protocol.ArmBoard`. So all of them get the same answers.

    Args:
        arm: The arm.
        trials: How many search trials its searches share out; ignored for an arm that searches nothing.
        seeds: How many seeds the arm asks for.
        searched: The ended search trials by number. The mapping is kept, not copied.
        confirmed: The ended confirmations by slot. The mapping is kept, not copied.

    Attributes:
        lanes: The arm's searches with their confirmations.
        running: The slots of running trials, including those that wait for a retry.

    Example:
        >>> from topk_platform.specs import Float, Loss, Model, Recipe, Regime
        >>> loss = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1})
        >>> arm = Arm(Regime("r", "digits"), Model("mlp"), loss, 1, Recipe(epochs=4))
        >>> ended = {n: Ended(n, {}, "completed", {4: 0.8 + n / 10}) for n in range(2)}
        >>> progress = ArmProgress(arm, trials=2, seeds=3, searched=ended)
        >>> [chosen.number for chosen in progress.chosen], progress.left
        ([1], 3)
    """

    def __init__(
        self,
        arm: Arm,
        trials: int,
        seeds: int,
        searched: Mapping[int, Ended] | None = None,
        confirmed: Mapping[Slot, Ended] | None = None,
    ) -> None:
        self.arm, self.seeds = arm, seeds
        self.searched: Mapping[int, Ended] = {} if searched is None else searched
        self.confirmed: Mapping[Slot, Ended] = {} if confirmed is None else confirmed
        self.running: set[Slot] = set()
        self._budget = trials if arm.is_searched else 0
        self.lanes = [
            Lane(arm, index, self._budget, seeds, self.searched, self.confirmed)
            for index in range(arm.repeats.count)
        ]

    @property
    def trials(self) -> int:
        """How many search trials the arm asks for; one that all searches share counts once."""
        return self.arm.repeats.asked(self._budget)

    @property
    def total(self) -> int:
        """How many trials the arm asks for in all."""
        return self.trials + self.seeds

    @property
    def searching(self) -> bool:
        """Whether search trials have not ended."""
        return any(lane.searching for lane in self.lanes)

    @property
    def chosen(self) -> list[Ended | None]:
        """The configuration that each search has chosen so far; None if no trial of it completed."""
        return [lane.chosen_by_now for lane in self.lanes]

    @property
    def left(self) -> int:
        """How many trials have not ended. Running and open ones count, confirmations that cannot run do not."""
        if len(self.lanes) == 1:  # fast, because it is asked as often as the next slot
            return self.lanes[0].left
        return sum(lane.left for lane in self.lanes)

    @property
    def trainings(self) -> int:
        """How many trainings of single trials, or of whole ensembles, are left."""
        return math.ceil((self.left + self.along) / self.arm.protocol.ensemble)

    @property
    def search_workers(self) -> int:
        """The maximum number of workers that the rest of the search can keep busy at once."""
        return sum(lane.search_workers for lane in self.lanes)

    @property
    def confirm_workers(self) -> int:
        """The maximum number of workers that the rest of the confirmations can keep busy at once."""
        return sum(lane.confirm_workers for lane in self.lanes)

    @property
    def rounds(self) -> tuple[int, int]:
        """How many search trainings, and how many confirmations, must still start one after another."""
        searches = max(lane.search_rounds for lane in self.lanes)
        return searches, max(lane.confirm_rounds for lane in self.lanes)

    def counts(self, number: int) -> bool:
        """Return whether the arm asks for a search trial, by its number."""
        return self.arm.repeats.holds(number, self._budget)

    def missing(self) -> list[Slot]:
        """Return the slots that have not ended. A search's confirmations are listed only after the search has ended."""
        return [slot for lane in self.lanes for slot in lane.missing()]

    def known(self, number: int) -> list[Ended]:
        """Return the trials that a trial's suggestion may use, numbered by their positions in the search."""
        repeats, search = self.arm.repeats, self.arm.repeats.search_of(number)
        known = self.lanes[search].known(number)
        if repeats.count == 1:
            return [self.searched[position] for position in known]
        return [self.searched[repeats.number_at(search, i)]._replace(number=i) for i in known]

    def block(self, slot: Slot) -> tuple[Slot, ...]:
        """Return the slots that train together with a slot, including it: one alone, or a whole ensemble.

        A block is complete even if only a part of it is within the budget, or the ledger already has a part of it. The
        reason is that the last bits of a member's result depend on the number of members.
        """
        phase, number, seed = slot
        repeats, size = self.arm.repeats, self.arm.protocol.ensemble
        if phase == "search":
            return tuple((phase, member, seed) for member in repeats.block(number, size))
        return tuple((phase, number, member) for member in repeats.seed_block(seed, size))

    @property
    def along(self) -> int:
        """How many trials outside the budget must still train, because ensembles are trained as a whole."""
        if self.arm.protocol.ensemble == 1:
            return 0
        count = self._filling(self.missing(), self.running)
        for lane in self.lanes:
            if not lane.confirming:  # its seeds are known, but not yet its choice
                seeds = self.arm.repeats.seeds_of(lane.index, self.seeds)
                count += self._filling([("confirm", -1, seed) for seed in seeds])
        return count

    def _filling(self, missing: Iterable[Slot], running: Iterable[Slot] = ()) -> int:
        """Return how many other trials run or complete the blocks of the missing ones, and have not ended."""
        slots = set(missing)
        others = {*running, *(member for slot in slots for member in self.block(slot))} - slots
        return sum(
            slot not in self.confirmed if slot[0] == "confirm" else slot[1] not in self.searched
            for slot in others
        )
