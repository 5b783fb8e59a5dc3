"""The state of one arm of a running study: which of its trials run, which may start now, and the trial of each slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from topk_platform.identity import Identity
from topk_platform.protocol.arm_progress import ArmProgress
from topk_platform.protocol.ended import Ended
from topk_platform.protocol.lane import Lane, Slot
from topk_platform.protocol.search.pruning import stopping_values
from topk_platform.specs import Arm, Scalar, Study, Trial

if TYPE_CHECKING:
    from topk_platform.protocol.search.suggest import Searcher

__all__ = ["ArmBoard"]

_FIRST: Slot = ("search", 0, 0)  # all searches may share this trial


class ArmBoard(ArmProgress):
    """One arm's plan and its progress while the study runs.

    Args:
        study: The study, which gives the budget and the root of the random streams.
        arm: The arm.
        identity: The identity of the rows that count.
        searched: The ended search trials by number.
        confirmed: The ended confirmations by slot.
        outdated: How many recorded trials of the arm do not count, by reason.

    Attributes:
        open: The slots of trials that this run leaves without a result.
        beyond: How many trials outside the budget have ended, because they trained in an ensemble with others.
    """

    def __init__(
        self,
        study: Study,
        arm: Arm,
        identity: Identity,
        searched: dict[int, Ended] | None = None,
        confirmed: dict[Slot, Ended] | None = None,
        outdated: Mapping[str, int] | None = None,
    ) -> None:
        self._searched = {} if searched is None else searched
        self._confirmed = {} if confirmed is None else confirmed
        super().__init__(arm, study.trials, study.seeds, self._searched, self._confirmed)
        self.study, self.identity, self.outdated = study, identity, outdated or {}
        self.arm_id = study.arm_id(arm)
        self.open: set[Slot] = set()
        self.beyond = 0
        self._ahead: tuple[int, int, int] | None = None
        self._searchers: dict[int, Searcher] = {}

    def next_slot(self) -> Slot | None:
        """Return the first slot that may start now because its history is complete, or None. Searches take turns."""
        if len(self.lanes) == 1:  # fast: every arm is asked before every trial
            return self.lanes[0].next_slot()
        slots = (slot for lane in self.lanes if (slot := lane.next_slot()) is not None)
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

    def _lane(self, slot: Slot) -> Lane:
        phase, number, seed = slot
        repeats = self.arm.repeats
        return self.lanes[repeats.search_of(number) if phase == "search" else repeats.search_of_seed(seed)]

    def take(self, slots: Iterable[Slot]) -> None:
        """Note that trials start."""
        self._ahead = None
        for slot in slots:
            self.running.add(slot)
            self._lane(slot).take(slot)

    def release(self, slot: Slot) -> None:
        """Let a trial that was running start again."""
        self._ahead = None
        self.running.discard(slot)
        if (lane := self._lane(slot)).asks_for(slot):
            lane.free(slot)

    def leave(self, slot: Slot) -> None:
        """Leave a running trial without a result. Trials of the arm that depend on it do not start."""
        self._ahead = None
        self.running.discard(slot)
        if self._lane(slot).asks_for(slot):
            self.open.add(slot)

    def end(self, slot: Slot, ended: Ended) -> None:
        """Note that a trial has ended."""
        self._ahead = None
        self.running.discard(slot)
        lane = self._lane(slot)
        asked_for = lane.asks_for(slot)
        self.beyond += not asked_for and self.arm.protocol.ensemble > 1
        if slot[0] == "confirm":
            self._confirmed[slot] = ended
        else:
            self._searched[ended.number] = ended
        if asked_for:
            lane.end(slot)
        for other in self.lanes if slot == _FIRST else (lane,):
            other.note()

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
            topk=study.topk,
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
            measures=study.measures,
        )

    def _searcher(self, number: int) -> Searcher:
        """Return the searcher of a trial's search, made once; each search has its own random draws."""
        from topk_platform.protocol.search.suggest import Searcher  # noqa: PLC0415 - imports Optuna, which counting trials does not need

        repeats = self.arm.repeats
        search = repeats.search_of(number)
        if search not in self._searchers:
            lane = self.lanes[search]
            self._searchers[search] = Searcher(
                f"{self.arm_id}/{search}" if search else self.arm_id,
                self.arm.loss,
                self.arm.protocol.sampler,
                lambda position: lane.known(repeats.number_at(search, position)),
            )
        return self._searchers[search]
