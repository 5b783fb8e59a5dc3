"""The state of one arm: what has ended and follows from it, which trials run or may start, and each slot's trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from topk_platform.identity import Identity
from topk_platform.protocol.pruning import stopping_values
from topk_platform.protocol.search_progress import Ended, SearchProgress, Slot
from topk_platform.specs import Arm, Scalar, Study, Trial

if TYPE_CHECKING:
    from topk_platform.protocol.suggest import Searcher

__all__ = ["ArmProgress"]


class ArmProgress:
    """One arm's plan and its progress, within a study's budget.

    Tables and the status build this from the recorded rows, and a run keeps it up to date trial by trial. So all of
    them get the same answers.

    Args:
        study: The study, which gives the budget and the root of the random streams.
        arm: The arm.
        identity: The identity of the rows that count; trials have it.
        searched: The ended search trials by number. The mapping is kept, not copied; a run adds to it.
        confirmed: The ended confirmations by slot, likewise.
        outdated: How many recorded trials of the arm do not count, by reason.

    Attributes:
        searches: The arm's searches with their confirmations.
        running: The slots of running trials, including those that wait for a retry.
        open: The slots of trials that this run leaves without a result.
        beyond: How many trials outside the budget have ended, because they trained in an ensemble with others.

    Example:
        >>> from topk_platform.specs import Float, Loss, Model, Recipe, Regime
        >>> loss = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1})
        >>> arm = Arm(Regime("r", "digits"), Model("mlp"), loss, 1, Recipe(epochs=4))
        >>> ended = {n: Ended(n, {}, "completed", {4: 0.8 + n / 10}) for n in range(2)}
        >>> progress = ArmProgress(Study("s", [arm], topk=(1,), trials=2, seeds=3), arm, Identity(), ended)
        >>> [chosen.number for chosen in progress.chosen], progress.left
        ([1], 3)
    """

    def __init__(
        self,
        study: Study,
        arm: Arm,
        identity: Identity,
        searched: Mapping[int, Ended] | None = None,
        confirmed: Mapping[Slot, Ended] | None = None,
        outdated: Mapping[str, int] | None = None,
    ) -> None:
        self.searched: Mapping[int, Ended] = {} if searched is None else searched
        self.confirmed: Mapping[Slot, Ended] = {} if confirmed is None else confirmed
        self.arm, self.running = arm, set[Slot]()
        self._budget = study.trials if arm.is_searched else 0
        self.searches = [
            SearchProgress(arm, index, self._budget, study.seeds, self.searched, self.confirmed)
            for index in range(arm.repeats.count)
        ]
        self.study, self.identity, self.outdated = study, identity, outdated or {}
        self.arm_id = study.arm_id(arm)
        self.open: set[Slot] = set()
        self.beyond = 0
        self._ahead: tuple[int, int, int] | None = None
        self._searchers: dict[int, Searcher] = {}

    @property
    def trials(self) -> int:
        """How many search trials the arm asks for."""
        return self._budget

    @property
    def total(self) -> int:
        """How many trials the arm asks for in all."""
        return self.trials + self.study.seeds

    @property
    def searching(self) -> bool:
        """Whether search trials have not ended."""
        return any(search.searching for search in self.searches)

    @property
    def chosen(self) -> list[Ended | None]:
        """The configuration that each search has chosen so far; None if no trial of it completed."""
        return [search.chosen_by_now for search in self.searches]

    @property
    def left(self) -> int:
        """How many trials have not ended. Running and open ones count, confirmations that cannot run do not."""
        return sum(search.left for search in self.searches)

    @property
    def trainings(self) -> int:
        """How many trainings of single trials, or of whole ensembles, are left."""
        return math.ceil((self.left + self.along) / self.arm.protocol.ensemble)

    @property
    def search_workers(self) -> int:
        """The maximum number of workers that the rest of the search can keep busy at once."""
        return sum(search.search_workers for search in self.searches)

    @property
    def confirm_workers(self) -> int:
        """The maximum number of workers that the rest of the confirmations can keep busy at once."""
        return sum(search.confirm_workers for search in self.searches)

    @property
    def rounds(self) -> tuple[int, int]:
        """How many search trainings, and how many confirmations, must still start one after another."""
        searches = max(search.search_rounds for search in self.searches)
        return searches, max(search.confirm_rounds for search in self.searches)

    def counts(self, number: int) -> bool:
        """Return whether the arm asks for a search trial, by its number."""
        return self.arm.repeats.holds(number, self._budget)

    def missing(self) -> list[Slot]:
        """Return the slots that have not ended. A search's confirmations are listed only after the search has ended."""
        return [slot for search in self.searches for slot in search.missing()]

    def known(self, number: int) -> list[Ended]:
        """Return the trials that a trial's suggestion may use, numbered by their positions in the search."""
        repeats, search = self.arm.repeats, self.arm.repeats.search_of(number)
        known = self.searches[search].known(number)
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
        for search in self.searches:
            if not search.confirming:  # its seeds are known, but not yet its choice
                seeds = self.arm.repeats.seeds_of(search.index, self.study.seeds)
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

    def next_slot(self) -> Slot | None:
        """Return the first slot that may start now because its history is complete, or None. Searches take turns."""
        slots = (slot for search in self.searches if (slot := search.next_slot()) is not None)
        return min(slots, key=self._turn, default=None)

    def _turn(self, slot: Slot) -> tuple[int, int, int]:
        repeats, (_, number, seed) = self.arm.repeats, slot
        return (repeats.rank_of(seed), *repeats.order(number))

    @property
    def ahead(self) -> tuple[int, int, int]:
        """What has not started: search trainings in sequence, confirmations in sequence, and the number of trials."""
        if self._ahead is None:
            self._ahead = (*self.rounds, self.left - len(self.running))
        return self._ahead

    def _search_of(self, slot: Slot) -> SearchProgress:
        phase, number, seed = slot
        repeats = self.arm.repeats
        return self.searches[repeats.search_of(number) if phase == "search" else repeats.search_of_seed(seed)]

    def take(self, slots: Iterable[Slot]) -> None:
        """Note that trials start."""
        self._ahead = None
        for slot in slots:
            self.running.add(slot)
            self._search_of(slot).take(slot)

    def release(self, slot: Slot) -> None:
        """Let a trial that was running start again."""
        self._ahead = None
        self.running.discard(slot)
        if (search := self._search_of(slot)).asks_for(slot):
            search.free(slot)

    def leave(self, slot: Slot) -> None:
        """Leave a running trial without a result. Trials of the arm that depend on it do not start."""
        self._ahead = None
        self.running.discard(slot)
        if self._search_of(slot).asks_for(slot):
            self.open.add(slot)

    def end(self, slot: Slot, ended: Ended) -> None:
        """Note that a trial has ended."""
        self._ahead = None
        self.running.discard(slot)
        search = self._search_of(slot)
        asked_for = search.asks_for(slot)
        self.beyond += not asked_for and self.arm.protocol.ensemble > 1
        if slot[0] == "confirm":
            cast("dict[Slot, Ended]", self.confirmed)[slot] = ended
        else:
            cast("dict[int, Ended]", self.searched)[ended.number] = ended
        if asked_for:
            search.end(slot)
        search.note()

    def trial(self, slot: Slot) -> Trial:
        """Return the trial of a slot whose history is complete."""
        phase, number, seed = slot
        study, arm, identity, block = self.study, self.arm, self.identity, self.block(slot)
        if phase == "search":
            known = self.known(number)
            values: Mapping[str, Scalar] = self._searcher(number).suggest(arm.repeats.position(number), known)
            below = stopping_values(arm.protocol.pruner, arm.recipe, known)
        else:
            values, below = self.searched[number].values if arm.is_searched else {}, ()
        return Trial(
            study=study.name,
            arm_id=self.arm_id,
            arm=arm.searched(1),
            topk=study.topk_of(arm),
            targets=study.targets,
            phase=phase,
            number=number,
            seed=seed,
            root=study.seed,
            values=values,
            dataset_fingerprint=identity.dataset_fingerprint,
            code_version=identity.code_version,
            stop_below=below,
            together=() if len(block) == 1 else tuple(n if phase == "search" else s for _, n, s in block),
            threads=study.threads,
            device=study.device,
            environment=identity.environment,
            measures=study.built_in,
        )

    def _searcher(self, number: int) -> Searcher:
        """Return the searcher of a trial's search, made once; each search has its own random draws."""
        from topk_platform.protocol.suggest import Searcher  # noqa: PLC0415 - imports Optuna, which counting trials does not need

        repeats = self.arm.repeats
        index = repeats.search_of(number)
        if index not in self._searchers:
            self._searchers[index] = Searcher(
                f"{self.arm_id}/{index}",
                self.arm.loss,
                self.arm.protocol.sampler,
                lambda position: self.searches[index].known(repeats.number_at(index, position)),
            )
        return self._searchers[index]
