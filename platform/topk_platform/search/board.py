"""The state of a study: which trials have ended and which may start now; no clock, no worker, no file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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

    Args:
        study: Gives the budget and the streams' root.
        arm: The arm.
        identity: What its trials have in common with those that count.
        searched: The ended search trials by number.
        confirmed: The slots of the ended confirmations.
        outdated: How many recorded trials of the arm do not count, by the reason.
    """

    study: Study
    arm: Arm
    identity: Identity
    searched: dict[int, Ended] = field(default_factory=dict)
    confirmed: set[Slot] = field(default_factory=set)
    outdated: Mapping[str, int] = field(default_factory=dict)
    running: set[Slot] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.arm_id = self.study.arm_id(self.arm)

    @property
    def trials(self) -> int:
        """How many search trials the arm asks for."""
        return self.study.trials if self.arm.searches else 0

    @property
    def searching(self) -> bool:
        """Whether search trials are still to end."""
        return any(number not in self.searched for number in range(self.trials))

    def best(self) -> Ended | None:
        """Return the best search trial of those that the study asks for, or what stands for it."""
        return chosen(self.arm, (ended for number, ended in self.searched.items() if number < self.trials))

    def wanted(self) -> list[Slot]:
        """Return the slots still to be filled, as far as they are known; confirmations follow the search."""
        numbers = [n for n in range(self.trials) if n not in self.searched]
        if numbers:
            return [("search", number, 0) for number in numbers]
        if (found := self.best()) is None:
            return []
        slots: list[Slot] = [("confirm", found.number, seed) for seed in range(1, self.study.seeds + 1)]
        return [slot for slot in slots if slot not in self.confirmed]

    def ready(self) -> Iterator[Slot]:
        """Yield the slots that may start now: those whose history is complete and that are not running."""
        for slot in self.wanted():
            phase, number, _ = slot
            known = self._known(number) if phase == "search" else ()
            if slot not in self.running and all(n in self.searched for n in known):
                yield slot

    def _known(self, number: int) -> range:
        size = self.arm.protocol.ensemble
        return range(max(0, number // size * size - self.arm.protocol.width + 1))

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
        if slot[0] == "search":
            self.searched[ended.number] = ended
        else:
            self.confirmed.add(slot)

    @property
    def total(self) -> int:
        """How many trials the arm asks for in all."""
        return self.trials + self.study.seeds

    @property
    def left(self) -> int:
        """How many are still to end, running ones among them; confirmations that cannot be are not."""
        wanted = len(self.wanted())
        return wanted + self.study.seeds if self.searching else wanted


class Board:
    """All arms of a study.

    Args:
        arms: Their boards.

    Attributes:
        lost: How many processes were lost whose trials start again.
    """

    def __init__(self, arms: Iterable[ArmBoard]) -> None:
        self.arms = {arm.arm_id: arm for arm in arms}
        self.lost = 0

    def next_trials(self) -> tuple[Trial, ...]:
        """Return the next trial, or all of the next ensemble, and mark them as running; none while nothing can start.

        The arm with most left to do goes first, for its trials wait for one another.
        """
        candidates = ((arm, slot) for arm in self.arms.values() for slot in arm.ready())
        first = max(candidates, key=lambda pair: pair[0].left - len(pair[0].running), default=None)
        if first is None:
            return ()
        arm, slot = first
        block = arm.block(slot)
        arm.running.update(block)
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
        """Let a running trial whose process was lost start again."""
        self.arms[trial.arm_id].running.discard((trial.phase, trial.number, trial.seed))

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
