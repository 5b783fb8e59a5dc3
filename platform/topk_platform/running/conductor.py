"""Between Ray Tune and the study: hands out trials, takes their records, and tries lost ones again."""

from __future__ import annotations

import importlib.metadata
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from topk_platform.data import data_folder
from topk_platform.outcomes import Ended
from topk_platform.records import Store
from topk_platform.search import Board
from topk_platform.specs import Trial, TrialRecord

__all__ = ["BoardSearcher", "Conductor", "LossListener"]

_TRIES = 4
_REASON_LENGTH = 600
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")
_RAYS_GUESSES = " Some common causes include"  # a paragraph on what it might have been


class Conductor:
    """What Tune's searcher and its callback share.

    Args:
        board: The study's state.
        keep: Called with every record, before anything that follows from it may start.
        tell: Called with it afterwards, and with None when a process was lost.
        store: The URI of the study's folder, for the workers.
        checkpoint_seconds: The least time between two checkpoints of a trial.

    Attributes:
        refusal: Why a worker could not run a trial as it was planned; empty while none has refused.
    """

    def __init__(
        self,
        board: Board,
        keep: Callable[[TrialRecord], None],
        tell: Callable[[TrialRecord | None], None],
        store: str,
        checkpoint_seconds: float,
    ) -> None:
        self._board = board
        self._keep = keep
        self._tell = tell
        self._settings = {"store": store, "checkpoint_seconds": checkpoint_seconds}
        self._place = Store.open(store)
        self._running: dict[str, tuple[Trial, ...]] = {}
        self._lost: Counter[str] = Counter()
        self.refusal = ""
        self._versions = {name: importlib.metadata.version(name) for name in ("ray", "optuna")}

    @property
    def done(self) -> bool:
        """Whether nothing more is to start: every trial has ended, or a worker refused one."""
        return bool(self.refusal) or self._board.left == 0

    def start(self, tune_id: str) -> dict[str, Any] | None:
        """Return the configuration of the next trial or ensemble, or None while nothing can start."""
        trials = self._board.next_trials()
        if not trials:
            return None
        self._running[tune_id] = trials
        return {
            "trials": [trial.to_json() for trial in trials],
            "data": str(data_folder()),
            **self._settings,
        }

    def end(self, tune_id: str, records: Sequence[TrialRecord]) -> None:
        """Keep the records of trials that ended together, then let what waits for them start."""
        trials = self._running.pop(tune_id)
        for trial, record in zip(trials, records, strict=True):
            if self._board.has_ended(trial):  # of an ensemble that was cut off while its records were written
                self._board.release(trial)
                continue
            self._keep(record.replace_versions(**{**trial.environment, **record.versions, **self._versions}))
            self._board.end(trial, Ended.from_record(record))
            self._tell(record)

    def lose(self, tune_id: str, reason: str) -> None:
        """Let a trial whose process was lost start again, three times at most; then it is recorded as failed."""
        trials = self._running[tune_id]
        self._lost[trials[0].key] += 1
        if self._lost[trials[0].key] < _TRIES:
            del self._running[tune_id]
            for trial in trials:
                self._board.release(trial)
            self._board.lost += 1
            self._tell(None)
        else:
            now = time.time()
            why = f"its process was lost {_TRIES} times: {reason}"
            self.end(tune_id, [TrialRecord(trial, "failed", why, started=now, ended=now) for trial in trials])

    def refuse(self, tune_id: str, reason: str) -> None:
        """Keep nothing of a trial that a worker cannot run as it was planned, and start nothing more."""
        self.refusal = self.refusal or reason
        for trial in self._running.pop(tune_id):
            self._board.release(trial)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it for a restore that never happens: the ledger is what a study goes on from


class BoardSearcher(Searcher):  # type: ignore[misc]
    """Tune's searcher: asks the conductor for trials and brings it their records."""

    def __init__(self, conductor: Conductor) -> None:
        super().__init__(metric=None, mode=None)
        self._conductor = conductor

    def suggest(self, trial_id: str) -> Any:
        """Return a configuration, None while nothing can start, ``FINISHED`` at the end."""
        return Searcher.FINISHED if self._conductor.done else self._conductor.start(trial_id)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Take the record; a trial that was cut off by an interrupt has none and leaves no trace."""
        if error or result is None:
            return
        if "refused" in result:
            self._conductor.refuse(trial_id, result["refused"])
        elif "records" in result:
            self._conductor.end(trial_id, [TrialRecord.from_json(text) for text in result["records"]])

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the ledger holds everything."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""


class LossListener(tune.Callback):  # type: ignore[misc]
    """Tune's callback: tells the conductor of lost processes and why."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        """Hand over what Ray says of it."""
        self._conductor.lose(trial.trial_id, _reason(trial.error_file))


def _reason(path: str | None) -> str:
    """Return what Tune's error file says: the exception, and the last line where that says more."""
    # Not trial.get_error(), which reads a copy that Tune has yet to make.
    text = Path(path).read_text(errors="replace") if path and Path(path).exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason is known"
    raised = [line for line in lines if _EXCEPTION.match(line)] or lines
    told = " ".join(dict.fromkeys((raised[-1], lines[-1])))
    return told.partition(_RAYS_GUESSES)[0][:_REASON_LENGTH]
