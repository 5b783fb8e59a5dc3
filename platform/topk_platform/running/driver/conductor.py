"""The link between Ray Tune and the study: it hands out trials, keeps records, and retries trials after faults."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from topk_platform.data import data_folder
from topk_platform.errors import FAULTS, FaultError, LostProcessError, NotStartedError, StalledError
from topk_platform.protocol import Board
from topk_platform.protocol.ended import Ended
from topk_platform.running.driver.assignments import Assignment, Orders
from topk_platform.running.driver.budget import Budget
from topk_platform.running.driver.retries import Faults, OpenTrial, Retries
from topk_platform.running.driver.starts import Starts
from topk_platform.running.machine.gpu_use import GpuSample
from topk_platform.running.progress.events import Event, EventKind
from topk_platform.specs import Trial, TrialRecord

__all__ = ["Conductor"]

_GRACE_SECONDS = 60.0  # the longest time that a message takes to arrive
_TURN_SECONDS = 10.0  # a longer turn counts as this much, because the driver itself was suspended


@dataclass
class Conductor:
    """The state that Tune's searcher, callback and stopper share.

    Args:
        board: The study's state.
        keep: Called with every record, before trials that depend on it may start.
        notify: Called with every event; for a record, after it was kept.
        orders: The settings that every trial gets besides its specification.
        pauses: Seconds before each further try after a fault.
        budget: The limits of the run; by default there are none.
        starts: Counts how long workers have waited for their start; by default they may wait without limit.
        clock: A monotonic clock, in seconds.

    Attributes:
        refusal: Why a worker could not run a trial as planned; empty while none has refused.
        broken: The error that kept a record from being written; None if there was none.
        unheard: The error that ``notify`` raised, as for a closed pipe; None if there was none. Then the run ends, and
            its trials are cut off.
        faults: The work that faults left undone after all retries.
    """

    board: Board
    keep: Callable[[TrialRecord], None]
    notify: Callable[[Event], None]
    orders: Orders
    pauses: Sequence[float]
    budget: Budget = field(default_factory=Budget)
    starts: Starts = field(default_factory=Starts)
    clock: Callable[[], float] = time.monotonic
    refusal: str = ""
    broken: Exception | None = None
    unheard: Exception | None = None
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self._runs: dict[str, Assignment] = {}
        self._waiting: list[tuple[float, tuple[Trial, ...]]] = []
        self._withdrawn: set[str] = set()
        self._retries = Retries(self.pauses)
        self._turn, self._now = self.clock(), 0.0
        self._versions = {name: importlib.metadata.version(name) for name in ("ray", "optuna")}

    @property
    def done(self) -> bool:
        """Whether no trial may start any more: all have ended or stay open, the budget is used up, or an error came."""
        if self._ends or self.board.ended:
            return True
        return not self._waiting and (self.board.stuck or self.board.held(self._may_start))

    @property
    def _ends(self) -> bool:
        """Whether the run ends although trials could start: the time is used up, or an error came."""
        return bool(self.refusal) or self.broken is not None or self._cuts

    @property
    def _cuts(self) -> bool:
        """Whether running trials are cut off; they continue later from their last checkpoints."""
        return self.unheard is not None or self.budget.over

    @property
    def deserted(self) -> bool:
        """Whether Tune waits only for workers that do not start and that no longer have a trial."""
        return bool(self._withdrawn) and not self._runs

    def begin_round(self) -> None:
        """Note that Tune starts again; its earlier workers are forgotten."""
        self._withdrawn.clear()

    @property
    def wait(self) -> float | None:
        """Seconds until the next retry; None while a trial trains, or if none waits."""
        if self._runs or self.done or not self._waiting:
            return None
        return max(0.0, min(due for due, _ in self._waiting) - self.clock())

    def start(self, tune_id: str) -> dict[str, Any] | None:
        """Return the configuration of the next trial or ensemble, or None while nothing can start."""
        if self.done:
            return None
        self._release_due()
        trials = self.board.next_trials(self._may_start, self.budget.pace)
        if not trials:
            return None
        self._runs[tune_id] = Assignment(trials)
        self.budget.begin(tune_id, trials[0].arm_id, len(trials))
        self.starts.add(tune_id, self._now)
        self._tell("started", trials)
        return {
            "trials": [trial.to_json() for trial in trials],
            "recorded": [trial.key for trial in trials if self.board.has_ended(trial)],
            "data": str(data_folder()),
            **asdict(self.orders),
        }

    def _may_start(self, arm_id: str, trials: int) -> bool:
        """Return whether so many trials of an arm may start, besides those that a fault stopped after their start."""
        stopped = sum(len(waiting) for _, waiting in self._waiting) + len(self.faults.open)
        return self.budget.allows(arm_id, stopped + trials)

    def _release_due(self) -> None:
        now = self.clock()
        for due, trials in [waiting for waiting in self._waiting if waiting[0] <= now]:
            self._waiting.remove((due, trials))
            for trial in trials:
                self.board.release(trial)

    def _tell(self, kind: EventKind, trials: tuple[Trial, ...], **facts: Any) -> None:
        try:
            self.notify(Event(kind, trials, workers=len(self._runs), **facts))
        except Exception as error:  # noqa: BLE001 - raised again outside of Tune, which would hide it in its own error
            self.unheard = self.unheard or error

    def watch(self, tune_id: str) -> bool:
        """Note that a worker has started; return False if it came too late and no longer has a trial."""
        if tune_id in self._withdrawn:
            return False
        self.starts.remove(tune_id)
        run = self._runs[tune_id]
        run.watched, run.last_message = True, self._now
        self.budget.run(tune_id)
        return True

    def follow(self, tune_id: str) -> dict[str, Any] | None:
        """Return the configuration of the next trial for a process whose last trial has ended, or None."""
        config = self.start(tune_id)
        if config is not None:
            self.watch(tune_id)
        return config

    def receive(self, tune_id: str, message: dict[str, Any]) -> None:
        """Process a worker's message about its trial, and remove the parts that Tune need not keep."""
        if tune_id in self._withdrawn:  # this worker is being ended, and another one has its trial
            return
        run = self._runs[tune_id]
        run.last_message = self._now
        run.patience = message.get("patience", run.patience)
        self._retries.progress(run.key, message.get("kept", 0))
        if not message["ended"]:
            self._progressed(run, message)
            return
        records = message.pop("records", [])
        del self._runs[tune_id]
        self.budget.end(tune_id, bool(records))
        if records:
            self._record(run, [TrialRecord.from_json(text) for text in records])
        elif "refused" in message:
            self._refuse(run, message["refused"])
        elif "fault" in message:
            self._fault(run, FAULTS[message["fault"]](message["why"]))

    def _progressed(self, run: Assignment, message: dict[str, Any]) -> None:
        sample, curve = message.pop("gpu", None), message.pop("curve", ())
        self._tell(
            "progress",
            run.trials,
            sample=None if sample is None else GpuSample(*sample),
            epoch=message.get("epoch", 0),
            curve=tuple(curve),
        )

    def _record(self, run: Assignment, records: Sequence[TrialRecord]) -> None:
        """Keep the records of trials that ended together, then let the trials that wait for them start."""
        self._retries.forget(run.key)
        for trial, record in zip(run.trials, records, strict=True):
            self.budget.learn(record)
            if self.board.has_ended(
                trial
            ):  # a member of an ensemble that was cut off while its records were written
                self.board.release(trial)
            elif self._is_kept(record):
                self.board.end(trial, Ended.from_record(record))
                if why := record.missing.get("network"):
                    self.faults.unsaved[trial.key] = why
                self._tell("ended", (trial,), record=record)

    def _is_kept(self, record: TrialRecord) -> bool:
        versions = {**record.trial.environment, **record.versions, **self._versions}
        try:
            self.keep(record.replace_versions(**versions))
        except Exception as error:  # noqa: BLE001 - raised again outside of Tune, when the running trials have ended
            self.broken = self.broken or error
            return False
        return True

    def lose(self, tune_id: str, reason: str) -> None:
        """Note that a trial's process was lost, or was ended because it had stalled or the time was used up."""
        run = self._runs.pop(tune_id, None)
        self.starts.remove(tune_id)
        self._withdrawn.discard(tune_id)
        if run is None:
            return
        self.budget.end(tune_id, ended=False)
        if run.cut:
            for trial in run.trials:
                self.board.release(trial)
            self._tell("cut", run.trials)
            return
        self._fault(run, run.stalled or LostProcessError(reason))

    def _fault(self, run: Assignment, fault: FaultError) -> None:
        """Let trials that a fault stopped start again after a pause, or leave them open."""
        text = f"{fault.kind}: {fault}"
        pause = self._retries.pause(run.key) if fault.passing else None
        if pause is None:
            self._leave(run, text, fault.remedy)
            return
        self._waiting.append((self.clock() + pause, run.trials))
        self.board.again += 1
        self._tell("again", run.trials, why=text)

    def _leave(self, run: Assignment, text: str, remedy: str) -> None:
        for trial in run.trials:
            if self.board.has_ended(trial):
                self.board.release(trial)
                continue
            self.board.leave(trial)
            self.faults.open.append(OpenTrial(trial.key, trial.arm.name, text, remedy))
        self._tell("open", run.trials, why=f"{text}; {remedy}")

    def _refuse(self, run: Assignment, reason: str) -> None:
        """Keep no record of a trial that a worker cannot run as planned, and start no further trial."""
        self.refusal = self.refusal or reason
        for trial in run.trials:
            self.board.release(trial)

    def stalled(self) -> list[str]:
        """Return Tune's names of the trials whose processes have been silent for too long, each name once.

        Once the time is used up, or nobody takes the events any more, return all trials.

        Called at every turn of the driver's loop. Time is counted in turns. So if the driver itself was suspended, as
        on a closed laptop, processes whose messages are still waiting do not count as dead.
        """
        now = self.clock()
        if now - self._turn < 1:  # there are many turns, and each look visits all running trials
            return []
        self._now += min(now - self._turn, _TURN_SECONDS)
        self._turn = now
        for tune_id in self.starts.overdue(self._now):
            self._withdraw(tune_id)
        silent = [tune_id for tune_id, run in self._runs.items() if self._is_stalled(run)]
        for tune_id in silent:
            run = self._runs[tune_id]
            run.stalled = StalledError(
                f"its process showed no progress for {self._now - run.last_message:.0f} s"
            )
        if self._ends:
            self._call_off()
        return silent + (self._cut() if self._cuts else [])

    def _call_off(self) -> None:
        """Take back all trials whose workers have not started, because the run ends and must not wait for them."""
        for tune_id in [tune_id for tune_id, run in self._runs.items() if not run.watched]:
            for trial in self._taken_back(tune_id).trials:
                self.board.release(trial)

    def _taken_back(self, tune_id: str) -> Assignment:
        """Take a trial from a worker that has not started, and return the assignment."""
        run = self._runs.pop(tune_id)
        self.budget.end(tune_id, ended=False)
        self.starts.remove(tune_id)
        self._withdrawn.add(tune_id)
        return run

    def _withdraw(self, tune_id: str) -> None:
        """Give up waiting for a worker that does not start. Its trial is tried again."""
        run = self._taken_back(tune_id)
        hours = self.starts.limit / 3600
        self._fault(
            run,
            NotStartedError(
                f"its process did not start within {hours:.3g} h, although there was room for it"
            ),
        )

    def _cut(self) -> list[str]:
        cut = [tune_id for tune_id, run in self._runs.items() if run.watched and not run.cut]
        for tune_id in cut:
            self._runs[tune_id].cut = True
        return cut

    def _is_stalled(self, run: Assignment) -> bool:
        patience = run.patience + self.orders.report_seconds + _GRACE_SECONDS
        return run.watched and run.stalled is None and self._now - run.last_message > patience

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it for a restore that never happens: a study continues from its ledger
