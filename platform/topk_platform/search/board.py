"""The state of a study: which trials have ended and which may start now; no clock, no worker, no file."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from topk_platform.identity import Identity
from topk_platform.outcomes import Ended, chosen
from topk_platform.search.pruning import stopping_values
from topk_platform.specs import Arm, Phase, Scalar, Study, Trial

__all__ = ["ArmBoard", "Board"]

Slot = tuple[Phase, int, int]
"""Phase, number and seed: a place in an arm's plan."""


@dataclass
class ArmBoard:
    """One arm's plan and what has become of it.

    What may start next is known at any time and kept up to date as trials start and end, so that asking for it costs
    the same whatever the number of trials.

    Args:
        study: Gives the budget and the streams' root.
        arm: The arm.
        identity: What its trials have in common with those that count.
        searched: The ended search trials by number.
        confirmed: The slots of the ended confirmations.
        outdated: How many recorded trials of the arm do not count, by the reason.

    Attributes:
        running: The slots of trials under way, those that wait to be tried again among them.
        open: The slots that are left without a result for now.
    """

    study: Study
    arm: Arm
    identity: Identity
    searched: dict[int, Ended] = field(default_factory=dict)
    confirmed: set[Slot] = field(default_factory=set)
    outdated: Mapping[str, int] = field(default_factory=dict)
    running: set[Slot] = field(default_factory=set)
    open: set[Slot] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.arm_id = self.study.arm_id(self.arm)
        self._whole = 0  # the search trials numbered below it have all ended
        self._free = Free(number for number in range(self.trials) if number not in self.searched)
        self._unsearched, self._unconfirmed = len(self._free), 0
        self._confirming: Ended | None = None
        self._note_whole()
        if not self.searching:
            self._confirm()

    @property
    def trials(self) -> int:
        """How many search trials the arm asks for."""
        return self.study.trials if self.arm.searches else 0

    @property
    def searching(self) -> bool:
        """Whether search trials are still to end."""
        return self._unsearched > 0

    def best(self) -> Ended | None:
        """Return the best search trial of those that the study asks for, or what stands for it."""
        return chosen(self.arm, (ended for number, ended in self.searched.items() if number < self.trials))

    def wanted(self) -> list[Slot]:
        """Return the slots still to be filled, as far as they are known; confirmations follow the search."""
        if self.searching:
            return [("search", number, 0) for number in range(self.trials) if number not in self.searched]
        if (found := self._confirming) is None:
            return []
        slots: list[Slot] = [("confirm", found.number, seed) for seed in range(1, self.study.seeds + 1)]
        return [slot for slot in slots if slot not in self.confirmed]

    def next_slot(self) -> Slot | None:
        """Return the first slot that may start now, its history being complete, or None."""
        place = self._free.first
        if place is None:
            return None
        if not self.searching:
            assert self._confirming is not None  # noqa: S101 - for the type checker: there are seeds to confirm it
            return "confirm", self._confirming.number, place
        # What a later number has to know is never less.
        return ("search", place, 0) if len(self._known(place)) <= self._whole else None

    def _known(self, number: int) -> range:
        size = self.arm.protocol.ensemble
        return range(max(0, number // size * size - self.arm.protocol.width + 1))

    def take(self, slots: Iterable[Slot]) -> None:
        """Take note that trials start."""
        for slot in slots:
            self.running.add(slot)
            self._free.discard(_place(slot))

    def release(self, slot: Slot) -> None:
        """Let a trial that was under way start again."""
        self.running.discard(slot)
        if self._is_wanted(slot):
            self._free.add(_place(slot))

    def leave(self, slot: Slot) -> None:
        """Leave a trial that was under way without a result: nothing of the arm that has to know it starts."""
        self.running.discard(slot)
        if self._is_wanted(slot):
            self.open.add(slot)

    def _is_wanted(self, slot: Slot) -> bool:
        phase, number, seed = slot
        if phase == "search":
            return number < self.trials and number not in self.searched
        return seed <= self.study.seeds and slot not in self.confirmed

    def block(self, slot: Slot) -> tuple[Slot, ...]:
        """Return the slots that train together with one, itself among them: one alone, or a whole ensemble.

        A block is whole even where the budget asks for a part of it or the ledger has one, for a member's last
        bits depend on how many there are.
        """
        phase, number, seed = slot
        size = self.arm.protocol.ensemble
        if phase == "search":
            first = number // size * size
            return tuple((phase, first + place, seed) for place in range(size))
        first = (seed - 1) // size * size + 1
        return tuple((phase, number, first + place) for place in range(size))

    def trial(self, slot: Slot) -> Trial:
        """Return the trial of a slot that is ready."""
        phase, number, seed = slot
        block = self.block(slot)
        together = () if len(block) == 1 else tuple(n if phase == "search" else s for _, n, s in block)
        if phase == "search":
            from topk_platform.search.suggest import suggest  # noqa: PLC0415 - Optuna, which counting need not wait for

            known = [self.searched[n] for n in self._known(number)]
            values: Mapping[str, Scalar] = suggest(
                self.arm_id, self.arm.loss, self.arm.protocol, number, known
            )
            stop_below = stopping_values(self.arm.protocol.pruning, self.arm.recipe, known)
        else:
            values = self.searched[number].values if self.arm.searches else {}
            stop_below = ()
        return Trial(
            study=self.study.name,
            arm_id=self.arm_id,
            arm=self.arm,
            topk=self.study.topk,
            targets=self.study.targets,
            phase=phase,
            number=number,
            seed=seed,
            root=self.study.seed,
            values=values,
            dataset_fingerprint=self.identity.dataset_fingerprint,
            code_version=self.identity.code_version,
            stop_below=stop_below,
            together=together,
            threads=self.study.threads,
            device=self.study.device,
            environment=self.identity.environment,
        )

    def end(self, slot: Slot, ended: Ended) -> None:
        """Take note of an ended trial."""
        self.running.discard(slot)
        wanted = self._is_wanted(slot)
        if slot[0] == "confirm":
            self.confirmed.add(slot)
            self._unconfirmed -= wanted
            return
        self.searched[ended.number] = ended
        self._unsearched -= wanted
        self._note_whole()
        if wanted and not self.searching:
            self._confirm()

    def _note_whole(self) -> None:
        while self._whole in self.searched:
            self._whole += 1

    def _confirm(self) -> None:
        """Take note of what is to be confirmed, the search having ended."""
        self._confirming = self.best()
        self._free = Free(seed for _, _, seed in self.wanted())
        self._unconfirmed = len(self._free)

    @property
    def total(self) -> int:
        """How many trials the arm asks for in all."""
        return self.trials + self.study.seeds

    @property
    def left(self) -> int:
        """How many are still to end, running and open ones among them; confirmations that cannot be are not."""
        return self._unsearched + self.study.seeds if self.searching else self._unconfirmed


def _place(slot: Slot) -> int:
    """Return what tells a slot from others of its phase: a search's number, a confirmation's seed."""
    phase, number, seed = slot
    return number if phase == "search" else seed


class Free:
    """Whole numbers of which the least is at hand.

    Args:
        numbers: In rising order.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._heap = list(numbers)
        self._there = set(self._heap)

    def __len__(self) -> int:
        return len(self._there)

    def add(self, number: int) -> None:
        """Add a number; one that is there stays there once."""
        if number not in self._there:
            self._there.add(number)
            heapq.heappush(self._heap, number)

    def discard(self, number: int) -> None:
        """Remove a number, if it is there."""
        self._there.discard(number)

    @property
    def first(self) -> int | None:
        """The least number, or None."""
        while self._heap and self._heap[0] not in self._there:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None


class Board:
    """All arms of a study.

    Args:
        arms: Their boards.

    Attributes:
        again: How many times trials were tried again after a fault.
    """

    def __init__(self, arms: Iterable[ArmBoard]) -> None:
        self.arms = {arm.arm_id: arm for arm in arms}
        self.again = 0

    def next_trials(self) -> tuple[Trial, ...]:
        """Return the next trial, or all of the next ensemble, and mark them as running; none while nothing can start.

        The arm with most left to do goes first, for its trials wait for one another.
        """
        candidates = ((arm, slot) for arm in self.arms.values() if (slot := arm.next_slot()) is not None)
        first = max(candidates, key=lambda pair: pair[0].left - len(pair[0].running), default=None)
        if first is None:
            return ()
        arm, slot = first
        block = arm.block(slot)
        arm.take(block)
        return tuple(arm.trial(member) for member in block)

    def has_ended(self, trial: Trial) -> bool:
        """Return whether a trial had ended before, as a part of an ensemble may have."""
        arm = self.arms[trial.arm_id]
        if trial.phase == "search":
            return trial.number in arm.searched
        return (trial.phase, trial.number, trial.seed) in arm.confirmed

    def end(self, trial: Trial, ended: Ended) -> None:
        """Take note of an ended trial."""
        self.arms[trial.arm_id].end((trial.phase, trial.number, trial.seed), ended)

    def release(self, trial: Trial) -> None:
        """Let a trial that was under way start again."""
        self.arms[trial.arm_id].release((trial.phase, trial.number, trial.seed))

    def leave(self, trial: Trial) -> None:
        """Leave a trial that was under way open: without a result, and not to be started again by this board."""
        self.arms[trial.arm_id].leave((trial.phase, trial.number, trial.seed))

    @property
    def stuck(self) -> bool:
        """Whether nothing is under way and nothing can start, though trials are left: open ones, and what waits."""
        arms = self.arms.values()
        return any(arm.left for arm in arms) and not any(arm.running or arm.next_slot() for arm in arms)

    @property
    def outdated(self) -> Counter[str]:
        """How many recorded trials do not count, by the reason."""
        return sum((Counter(arm.outdated) for arm in self.arms.values()), Counter())

    @property
    def left(self) -> int:
        """How many trials are still to end."""
        return sum(arm.left for arm in self.arms.values())

    @property
    def total(self) -> int:
        """How many trials the study asks for."""
        return sum(arm.total for arm in self.arms.values())
