"""Gives Ray Tune the trials that the protocol says are next, and takes in what becomes of them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from topk_platform.errors import FAULTS, ChangedError, FaultError, LostProcessError, StalledError
from topk_platform.protocol import StudyProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.records.run_notes import OpenTrial
from topk_platform.running.cluster.lifeline import Lifeline
from topk_platform.running.limits import Limits, Running
from topk_platform.running.messages import Order, Report
from topk_platform.running.summary import Outcome
from topk_platform.running.watching import Event, EventKind
from topk_platform.specs import Trial, TrialRecord

__all__ = ["PAUSES", "Dispatcher"]

PAUSES: Sequence[float] = (1.0, 4.0, 16.0, 64.0, 256.0)
"""Seconds before each further try of a trial that a fault has stopped; so many times Tune starts it again."""

_CHANGED = (
    "Ended trials are kept; once every process has the same code, data and environment, the same command goes on from "
    "here"
)
_FAULT = re.compile(rf"(?:[\w.]+\.)?({'|'.join(FAULTS)}): (.*)")


@dataclass
class Dispatcher:
    """What searcher, callback and stopper share: it hands out the study's trials and takes in what becomes of them.

    A trial of Tune is a trial of the study, or one of its ensembles. Tune starts it again after a fault, as often as
    there are :data:`PAUSES`. If it then has a later checkpoint than when Tune last gave it up, it is handed out again.
    So a trial that takes days ends, even on machines that are taken away every hour. Otherwise it stays open.

    Args:
        progress: The study's state.
        keep: Called with every record, to hand it to the ledger, before trials that depend on it may start.
        notify: Called with every event; for a record, after ``keep``.
        order: The settings that every process gets; each also gets its trials.
        limits: The limits of the run, with its trainings and its clock.
        line: Checks whether Ray still runs.

    Attributes:
        error: What ends the run: the first error that ``keep`` or ``notify`` raised, as for a closed pipe, or that a
            process could not train a trial as planned; None if there was none.
        outcome: What the run leaves: trials that stay open, networks that could not be kept.
    """

    progress: StudyProgress
    keep: Callable[[TrialRecord], None]
    notify: Callable[[Event], None]
    order: Order
    limits: Limits = field(default_factory=Limits)
    line: Lifeline = field(default_factory=Lifeline)
    error: Exception | None = None
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self._furthest: dict[str, int] = {}
        self._versions = {name: importlib.metadata.version(name) for name in ("ray", "optuna")}

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes its state to disk; a study continues from its ledger instead

    @property
    def ends(self) -> bool:
        """Whether the run ends although trials run: the time is used up, or an error came."""
        return self.error is not None or bool(self.limits.reached)

    @property
    def done(self) -> bool:
        """Whether no trial may start any more: all have ended or stay open, or a limit is reached, or the run ends."""
        return self.ends or self.progress.ended or self.progress.stuck or self.progress.held(self._may_start)

    def _may_start(self, arm_id: str, trials: int) -> bool:
        return not self.limits.against(arm_id, trials)

    def next_config(self, tune_id: str) -> dict[str, Any] | None:
        """Return Tune's configuration of the next trial or ensemble; None while nothing can start."""
        trials = () if self.done else self.progress.next_trials(self._may_start, self._pace)
        if not trials:
            return None
        self.limits.running[tune_id] = Running(trials, self.limits.clock(), self.order["start_limit"])
        self._send("started", trials)
        recorded = [trial.key for trial in trials if self.progress.has_ended(trial)]
        order: Order = {**self.order, "trials": [trial.to_json() for trial in trials], "recorded": recorded}
        first = trials[0]
        shown = {"arm": first.arm.name, "key": first.key, "seed": first.seed, **dict(first.values)}
        return {**shown, "order": order}

    def _pace(self, arm_id: str) -> float:
        """Return the expected time of an arm's trial, for the order of arms; equal for all if nothing is known."""
        return self.limits.durations.of(arm_id, unknown=1.0)

    def _send(self, kind: EventKind, trials: tuple[Trial, ...], **facts: Any) -> None:
        try:
            self.notify(Event(kind, trials, **facts))
        except Exception as error:  # noqa: BLE001 - raised again outside of Tune, which would hide it in its own error
            self.error = self.error or error

    def note_start(self, tune_id: str) -> None:
        """Note that a trial's process has started."""
        run = self.limits.running[tune_id]
        run.began = run.heard = self.limits.clock()
        run.patience = self.order["start_limit"]

    def receive(self, tune_id: str, message: dict[str, Any]) -> None:
        """Process a message about a trial, and remove the parts that are not for Tune and its other callbacks."""
        own = cast(Report, {name: message.pop(name) for name in Report.__annotations__ if name in message})
        run = self.limits.running[tune_id]
        run.heard, run.kept = self.limits.clock(), max(run.kept, own.get("kept", 0))
        if message.get("epoch"):
            run.patience = own.get("patience", run.patience)
        if not message["done"]:
            value = message.get(f"validation/{run.trials[0].arm.metric}")
            self._send("progress", run.trials, epoch=message.get("epoch", 0), value=value)
            return
        trials = self._stopped(tune_id).trials
        if "records" in own:
            self._record(trials, [TrialRecord.from_json(text) for text in own["records"]])
        elif "refused" in own:
            self.error = self.error or ChangedError(f"{own['refused']}. {_CHANGED}")
            self._release(trials)
        else:
            self._leave(trials, FAULTS[own["fault"]](own["why"]))

    def _record(self, trials: Sequence[Trial], records: Sequence[TrialRecord]) -> None:
        """Keep the records of trials that ended together, then let the trials that wait for them start."""
        self.limits.tried += len(trials)
        for trial, record in zip(trials, records, strict=True):
            self._furthest.pop(trial.key, None)
            self.limits.note_record(record)
            if self.progress.has_ended(trial):
                self.progress.release(trial)  # of an ensemble that was cut off while its records were written
            elif self._keep(record):
                self.progress.end(trial, Ended.from_record(record))
                self.outcome.ran += 1
                if why := record.missing.get("network"):
                    self.outcome.unsaved[trial.key] = why
                self._send("ended", (trial,), record=record)

    def _keep(self, record: TrialRecord) -> bool:
        """Hand a record to the ledger; return whether it was taken."""
        versions = {**record.trial.environment, **record.versions, **self._versions}
        try:
            self.keep(record.replace_versions(**versions))
        except Exception as error:  # noqa: BLE001 - raised again outside of Tune, as above
            self.error = self.error or error
            return False
        return True

    def restart(self, tune_id: str, tries: int, text: str) -> float:
        """Note that a fault has stopped a trial and Tune starts it again; return the seconds that it waits first.

        Args:
            tune_id: Tune's name of the trial.
            tries: How many faults have stopped it since it was handed out; Tune does not count that its machine was
                taken away with notice.
            text: Tune's text about the fault.
        """
        run = self.limits.running[tune_id]
        self.limits.note_stop(run)
        self._note_fault(run, self._fault(run, text))
        return PAUSES[min(max(tries, 1), len(PAUSES)) - 1]

    def give_up(self, tune_id: str, tries: int, text: str) -> None:
        """Note that Tune does not start a trial again: hand it out once more if it got further, or leave it open."""
        run = self._stopped(tune_id)
        fault, key = self._fault(run, text), run.trials[0].key
        if tries <= len(PAUSES) or run.kept > self._furthest.get(key, 0):
            self._furthest[key] = run.kept
            self._note_fault(run, fault)
            self._release(run.trials)
        else:
            self._leave(run.trials, fault)

    def _stopped(self, tune_id: str) -> Running:
        """Return a training that Tune does not have any more."""
        run = self.limits.running.pop(tune_id)
        self.limits.note_stop(run)
        return run

    def _fault(self, run: Running, text: str) -> FaultError:
        if match := _FAULT.fullmatch(text):
            return FAULTS[match[1]](match[2])
        if (silent := self.limits.clock() - run.heard) >= run.patience:
            return StalledError(f"its process showed no progress for {silent:.0f} s")
        return LostProcessError(text)

    def _note_fault(self, run: Running, fault: FaultError) -> None:
        self.progress.retries += 1
        self._send("again", run.trials, why=f"{fault.kind}: {fault}")

    def _leave(self, trials: tuple[Trial, ...], fault: FaultError) -> None:
        text = f"{fault.kind}: {fault}"
        for trial in trials:
            if self.progress.has_ended(trial):
                self.progress.release(trial)
                continue
            self.progress.leave(trial)
            self.limits.tried += 1
            self.outcome.open.append(OpenTrial(trial.key, trial.arm.name, text, fault.remedy))
        self._send("open", trials, why=f"{text}; {fault.remedy}")

    def _release(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self.progress.release(trial)

    def close(self) -> None:
        """Take back the trials that Tune still had at its end, and note why it ended.

        The next run continues them from their checkpoints.
        """
        cut = bool(self.limits.reached) or self.error is not None
        for tune_id in [*self.limits.running]:
            run = self._stopped(tune_id)
            self._release(run.trials)
            if cut:
                self._send("cut", run.trials)
        if self.outcome.lost or not self.progress.left:
            return
        used_up = set(self.limits.reached)
        if not used_up and self.progress.held(self._may_start):
            ready = [arm for arm in self.progress.arms.values() if arm.next_slot() is not None]
            used_up.update(*(self.limits.against(arm.arm_id, arm.arm.protocol.ensemble) for arm in ready))
        self.outcome.partial = ", ".join(sorted(used_up))
        self.outcome.interrupted = not used_up and not self.progress.stuck
