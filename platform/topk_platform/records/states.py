"""A study's progress, arm by arm. Its driver notes it while it runs, and any machine can read it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from topk_platform.errors import StoreError
from topk_platform.protocol import Counts, Tally
from topk_platform.records.recorded import Recorded
from topk_platform.records.run_notes import Unfinished
from topk_platform.records.storage.checked_json import with_checksum, without_checksum
from topk_platform.records.storage.lease import is_driven
from topk_platform.records.storage.store import Store
from topk_platform.specs import Arm, Scalar
from topk_platform.specs.codec import decode, encode

__all__ = [
    "ArmState",
    "StudyState",
    "TrialState",
    "note_state",
    "read_state",
]


_FILE = "standing.json"


@dataclass(frozen=True)
class ArmState:
    """An arm's progress.

    Args:
        arm: The arm's name.
        tally: How its trials that count have ended.
        left: How many trials have not ended, including running and lost ones; None if no plan is known.
        running: How many trials run, including those that wait for a retry.
        lost: How many trials have no result because of faults.
        metric: The selection metric.
        best: The highest validation value of a completed search trial (for an arm that searches nothing, of a
            confirmation), in [0, 1]; None before the first.
        values: The values chosen in the best trial.
        seconds: Expected seconds until the arm has ended on its current workers; None if unknown.

    Example:
        >>> state = ArmState("clean/mlp/ldam", Tally(completed=3, pruned=1), left=6)
        >>> state.done, state.total
        (4, 10)
    """

    arm: str
    tally: Tally = field(default_factory=Tally)
    left: int | None = None
    running: int = 0
    lost: int = 0
    metric: str = ""
    best: float | None = None
    values: Mapping[str, Scalar] = field(default_factory=dict)
    seconds: float | None = None

    @classmethod
    def of(
        cls, arm: Arm, counts: Counts, *, left: int | None, running: int, lost: int, seconds: float | None
    ) -> ArmState:
        """Return the progress of an arm from the counts of its ended trials; the others are the fields."""
        best = counts.best
        return cls(
            arm.name,
            Tally(**counts.statuses),
            left,
            running,
            lost,
            arm.metric,
            None if best is None else best.objective,
            {} if best is None else dict(best.values),
            seconds,
        )

    @classmethod
    def together(cls, name: str, arms: Sequence[ArmState]) -> ArmState:
        """Return the progress of several arms together; ``left`` is None if no arm has a plan."""
        known = [arm.left for arm in arms if arm.left is not None]
        return cls(
            name,
            Tally(**sum((Counter(dataclasses.asdict(arm.tally)) for arm in arms), Counter())),
            sum(known) if known else None,
            running=sum(arm.running for arm in arms),
            lost=sum(arm.lost for arm in arms),
        )

    @property
    def done(self) -> int:
        """How many trials have ended."""
        return self.tally.ended

    @property
    def total(self) -> int | None:
        """How many trials there will be in all; None if no plan is known."""
        return None if self.left is None else self.done + self.left


@dataclass(frozen=True)
class TrialState:
    """The progress of a running trial, or of the first trial of an ensemble.

    Args:
        trial: The trial's arm, and its number or seed.
        epoch: How many of its epochs have ended.
        epochs: The maximum number of its epochs.
        metric: The selection metric.
        value: The selection metric after the last validated epoch; None before it.
    """

    trial: str
    epoch: int
    epochs: int
    metric: str
    value: float | None = None


@dataclass(frozen=True)
class StudyState:
    """A study's progress.

    Args:
        study: Its name.
        arms: Its arms, in its order.
        workers: How many workers are busy.
        slots: How many workers there are.
        seconds: Expected seconds until all trials have ended; None if unknown.
        retries: How often a trial was tried again after a fault.
        events: The last events, one line each, the newest at the end.
        when: The time of this state, in ISO 8601.
        training: The first running trials, in the order of their starts.
    """

    study: str
    arms: tuple[ArmState, ...]
    workers: int = 0
    slots: int = 0
    seconds: float | None = None
    retries: int = 0
    events: tuple[str, ...] = ()
    when: str = ""
    training: tuple[TrialState, ...] = ()

    @property
    def whole(self) -> ArmState:
        """The progress of all arms together, by the study's name."""
        return ArmState.together(self.study, self.arms)


def note_state(store: Store, state: StudyState) -> None:
    """Write a study's progress into its folder, replacing the last note.

    Raises:
        StoreError: if it cannot be written.
    """
    store.write(_FILE, with_checksum(encode(state)))


def _noted(store: Store) -> StudyState | None:
    """Return the driver's note; None if there is none or it cannot be read. No result depends on it."""
    with suppress(FileNotFoundError, StoreError, ValueError):
        state = decode(without_checksum(store.read(_FILE)), (StudyState, ArmState, Tally, TrialState))
        return state if isinstance(state, StudyState) else None
    return None


def read_state(recorded: Recorded) -> StudyState:
    """Return a study's progress.

    The protocol says what has ended and what is left. If the study runs, its driver's note says the rest.

    Raises:
        StoreError: if the store cannot be read.
    """
    store = recorded.ledger.store
    noted = _noted(store)
    running = noted if noted is not None and is_driven(store) else None
    live = {arm.arm: arm for arm in running.arms} if running else {}
    lost = Counter(trial.arm for trial in Unfinished.read(store).open if trial.key not in recorded.keys)
    arms = []
    for arm_id, history in recorded.histories.items():
        arm, progress = history.arm, recorded.progress.get(arm_id)
        counts = Counts(arm, history.ended().values(), map(history.ended_of, history.confirm.values()))
        left = None if progress is None else progress.left + progress.along
        noted_arm = live.get(arm.name, ArmState(arm.name))
        arms.append(
            ArmState.of(
                arm,
                counts,
                left=left,
                running=min(noted_arm.running, left or 0),
                lost=max(lost[arm.name], noted_arm.lost),
                seconds=0.0 if left == 0 else noted_arm.seconds,
            )
        )
    if running is None:
        return StudyState(recorded.ledger.study, tuple(arms), when=noted.when if noted else "")
    return dataclasses.replace(running, arms=tuple(arms))
