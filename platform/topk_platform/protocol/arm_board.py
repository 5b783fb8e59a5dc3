"""The state of one arm: which of its trials have ended and which may start now, and the trial of each slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from topk_platform.identity import Identity
from topk_platform.protocol.ended import Ended
from topk_platform.protocol.lane import Lane, Slot
from topk_platform.protocol.pruning import Stopping, stopping_values
from topk_platform.protocol.racing import Results
from topk_platform.specs import Arm, Loss, NoPruning, Scalar, Study, Trial

if TYPE_CHECKING:
    from topk_platform.protocol.suggest import Searcher

__all__ = ["ArmBoard"]

_FIRST: Slot = ("search", 0, 0)  # which all searches may share


@dataclass
class ArmBoard:
    """One arm's plan and its progress.

    Args:
        study: The study, which gives the budget and the root of the random streams.
        arm: The arm.
        identity: The identity of the rows that count.
        searched: The ended search trials by number.
        confirmed: The ended confirmations by slot.
        outdated: How many recorded trials of the arm do not count, by the reason.

    Attributes:
        running: The slots of trials under way, including those that wait for a retry.
        open: The slots left without a result for now.
        lanes: Its searches.
        origin: The arm from whose best configuration its search starts, if it does.
        beyond: How many trials that were not asked for have ended, because they were in an ensemble with others.
    """

    study: Study
    arm: Arm
    identity: Identity
    searched: dict[int, Ended] = field(default_factory=dict)
    confirmed: dict[Slot, Ended] = field(default_factory=dict)
    outdated: Mapping[str, int] = field(default_factory=dict)
    running: set[Slot] = field(default_factory=set)
    open: set[Slot] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.arm_id = self.study.arm_id(self.arm)
        self.origin: ArmBoard | None = None
        self.beyond = 0
        self._ahead: tuple[int, int, int] | None = None
        points, asked = self.study.points(self.arm), self.study.trials if self.arm.is_searched else 0
        self._searchers: dict[int, Searcher] = {}
        self.lanes = [
            Lane(self.arm, index, asked, self.study.seeds, points, self.searched, self.confirmed)
            for index in range(self.arm.repeats.count)
        ]

    @property
    def trials(self) -> int:
        """How many search trials the arm asks for."""
        return self.study.search_trials(self.arm)

    @property
    def searching(self) -> bool:
        """Whether search trials are still to end."""
        return any(lane.searching for lane in self.lanes)

    def results(self) -> Results | None:
        """Return its results in a race, by the seed's rank; None if it has nothing to confirm."""
        if not any(lane.chosen or not lane.confirming for lane in self.lanes):
            return None
        found, repeats = {}, self.arm.repeats
        for rank, seed in enumerate(repeats.seeds(self.study.seeds), 1):
            lane = self.lanes[repeats.search_of_seed(seed)]
            slots: list[Slot] = [("confirm", ended.number, seed) for ended in lane.chosen[:1]]
            if lane.confirming and all(slot in self.confirmed for slot in slots):
                found[rank] = sum(self.confirmed[slot].score for slot in slots)  # 0 where it cannot be
        return found

    def wanted(self) -> list[Slot]:
        """Return the slots still to be filled, as far as known; confirmations follow their search."""
        return [slot for lane in self.lanes for slot in lane.wanted()]

    def next_slot(self) -> Slot | None:
        """Return the first slot that may start now, its history being complete, or None; searches take turns."""
        if len(self.lanes) == 1 and self.origin is None:  # of a hundred arms each is asked before every trial
            return self.lanes[0].next_slot()
        lanes = (lane for lane in self.lanes if not self._waits(lane))
        found = (slot for lane in lanes if (slot := lane.next_slot()) is not None)
        return min(found, key=self._turn, default=None)

    def _waits(self, lane: Lane) -> bool:
        """Return whether a search waits for the one that it starts from."""
        return self.origin is not None and self.origin.lanes[lane.index].searching

    def _turn(self, slot: Slot) -> tuple[int, int, int]:
        repeats, (_, number, seed) = self.arm.repeats, slot
        return (repeats.rank_of(seed), *repeats.order(number))

    @property
    def ahead(self) -> tuple[int, int, int]:
        """What has not started: search trainings in sequence, confirmations in sequence, and the number of trials."""
        if self._ahead is None:
            searches = max(lane.search_rounds for lane in self.lanes)
            confirmations = max(lane.confirm_rounds for lane in self.lanes)
            self._ahead = searches, confirmations, self.left - len(self.running)
        return self._ahead

    def limit(self, until: int, last: int) -> None:
        """Let only seeds of a rank up to ``until`` start now, and none above ``last`` ever."""
        self._ahead = None
        for lane in self.lanes:
            lane.limit(until, last)

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
        """Let a trial that was under way start again."""
        self._ahead = None
        self.running.discard(slot)
        if (lane := self._lane(slot)).wants(slot):
            lane.free(slot)

    def leave(self, slot: Slot) -> None:
        """Leave a running trial without a result; trials of the arm that depend on it do not start."""
        self._ahead = None
        self.running.discard(slot)
        if self._lane(slot).wants(slot):
            self.open.add(slot)

    def block(self, slot: Slot) -> tuple[Slot, ...]:
        """Return the slots that train together with a slot, including it: one alone, or a whole ensemble.

        A block is complete even where the budget asks for a part of it, or the ledger has a part, because a member's
        last bits depend on the number of members.
        """
        phase, number, seed = slot
        repeats, size = self.arm.repeats, self.arm.protocol.ensemble
        if phase == "search":
            return tuple((phase, member, seed) for member in repeats.block(number, size))
        return tuple((phase, number, member) for member in repeats.seed_block(seed, size))

    def trial(self, slot: Slot) -> Trial:
        """Return the trial of a slot that is ready."""
        phase, number, seed = slot
        block = self.block(slot)
        together = () if len(block) == 1 else tuple(n if phase == "search" else s for _, n, s in block)
        if phase == "search":
            known, position = self._known(number), self.arm.repeats.position(number)
            values: Mapping[str, Scalar] = self._searcher(number).suggest(position, known)
            pruner = self.arm.protocol.pruner if len(self.arm.objectives) == 1 else NoPruning()
            stopping = stopping_values(pruner, self.arm.recipe, known)
        else:
            values = self.searched[number].values if self.arm.is_searched else {}
            stopping = Stopping()
        return Trial(
            study=self.study.name,
            arm_id=self.arm_id,
            arm=self.arm.searched(1),
            topk=self.study.topk,
            targets=self.study.targets,
            phase=phase,
            number=number,
            seed=seed,
            root=self.study.seed,
            values=values,
            dataset_fingerprint=self.identity.dataset_fingerprint,
            code_version=self.identity.code_version,
            stop_below=stopping.below,
            spare=stopping.spare,
            together=together,
            threads=self.study.threads,
            device=self.study.device,
            environment=self.identity.environment,
            origin=self.identity.origin,
            measures=self.study.measures,
            calibration=self.study.calibration,
        )

    def _loss(self, search: int) -> Loss:
        """Return the loss with a search's first values: those that the origin's chose, for the dimensions of its space.

        If no trial of the origin's search was completed, the first values stay as they are.
        """
        loss, chosen = self.arm.loss, () if self.origin is None else self.origin.lanes[search].chosen
        if not chosen:
            return loss
        values = {name: chosen[0].values[name] for name in loss.space if name in chosen[0].values}
        taken = {name: value for name, value in values.items() if loss.space[name].holds(value)}
        return replace(loss, first={**loss.first, **taken})

    def _known(self, number: int) -> list[Ended]:
        """Return the trials that a trial's suggestion may use, numbered by their positions in the search."""
        repeats, search = self.arm.repeats, self.arm.repeats.search_of(number)
        known = self.lanes[search].known(number)
        if repeats.count == 1:
            return [self.searched[position] for position in known]
        return [replace(self.searched[repeats.number_at(search, i)], number=i) for i in known]

    def _searcher(self, number: int) -> Searcher:
        """Return the searcher of a trial's search, made once; each search has its own random draws."""
        from topk_platform.protocol.suggest import Searcher  # noqa: PLC0415 - Optuna, which counting need not wait for

        repeats = self.arm.repeats
        search = repeats.search_of(number)
        if search not in self._searchers:
            self._searchers[search] = Searcher(
                f"{self.arm_id}/{search}" if search else self.arm_id,
                self._loss(search),
                self.arm.protocol.sampler,
                lambda position: self.lanes[search].known(repeats.number_at(search, position)),
                len(self.arm.objectives),
            )
        return self._searchers[search]

    def end(self, slot: Slot, ended: Ended) -> None:
        """Take note of an ended trial."""
        self._ahead = None
        self.running.discard(slot)
        lane = self._lane(slot)
        wanted = lane.wants(slot)
        self.beyond += not wanted and self.arm.protocol.ensemble > 1
        if slot[0] == "confirm":
            self.confirmed[slot] = ended
        else:
            self.searched[ended.number] = ended
        if wanted:
            lane.end(slot)
        for other in self.lanes if slot == _FIRST else (lane,):
            other.note()

    @property
    def total(self) -> int:
        """How many trials the arm asks for in all."""
        return self.trials + self.study.seeds * self.study.points(self.arm)

    @property
    def left(self) -> int:
        """How many trials have not ended: running and open ones too, confirmations that cannot take place not."""
        if len(self.lanes) == 1:  # asked as often as for the next slot
            return self.lanes[0].left
        return sum(lane.left for lane in self.lanes)

    @property
    def along(self) -> int:
        """How many trials beyond those asked for still train along, because ensembles are trained whole."""
        if self.arm.protocol.ensemble == 1:
            return 0
        count = self._filling(self.wanted(), self.running)
        for lane in self.lanes:
            if not lane.confirming:  # what it will choose is not known, only of which seeds
                seeds = self.arm.repeats.seeds_of(lane.index, self.study.seeds)
                count += lane.points * self._filling([("confirm", -1, seed) for seed in seeds])
        return count

    def _filling(self, wanted: Iterable[Slot], running: Iterable[Slot] = ()) -> int:
        """Return how many trials that have not ended run, or are in the blocks of those wanted, beside them."""
        slots = set(wanted)
        others = {*running, *(member for slot in slots for member in self.block(slot))} - slots
        return sum(
            slot not in self.confirmed if slot[0] == "confirm" else slot[1] not in self.searched
            for slot in others
        )
