"""Trials that a run left open, noted in the store for ``topk status`` on any machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from topk_platform.records.storage.checked_json import read_checked, with_checksum
from topk_platform.records.storage.store import Store
from topk_platform.records.table.mark import repair_of

__all__ = ["OpenTrial", "Undone"]

_FILE = "undone.json"


@dataclass(frozen=True)
class OpenTrial:
    """A trial that a fault kept from its result; the same command tries it again.

    Args:
        key: The trial's key.
        arm: Its arm's name.
        fault: What happened the last time.
        remedy: What can be done about it.
        when: When the fault was noted, in ISO 8601; empty until it is noted at the end of the run.

    Example:
        >>> print(OpenTrial("0a1b", "plain/mlp/ldam", "process lost: killed", "see what ends processes there"))
        open: 0a1b plain/mlp/ldam: process lost: killed; see what ends processes there
    """

    key: str
    arm: str
    fault: str
    remedy: str
    when: str = ""

    def __str__(self) -> str:
        return f"open: {self.key} {self.arm}: {self.fault}; {self.remedy}"


@dataclass(frozen=True)
class Undone:
    """What the runs of a study have left undone.

    Args:
        open: Trials without a result. A trial may have ended since, in a run that was cut off.
        tracking: Why MLflow is behind; empty if it is not.
    """

    open: tuple[OpenTrial, ...] = ()
    tracking: str = ""

    @classmethod
    def read(cls, store: Store) -> Undone:
        """Return the note in a study's folder; empty if there is none.

        Raises:
            StoreError: if it cannot be read.
        """
        remedy = f"{repair_of(store)} sets it aside, and the next run makes it again"
        return read_checked(store, _FILE, remedy, cls._of) or cls()

    @classmethod
    def _of(cls, note: Mapping[str, Any]) -> Undone:
        return cls(tuple(OpenTrial(**fields) for fields in note["open"]), note["tracking"])

    def note(self, store: Store) -> None:
        """Write this to a study's folder if it differs from the last note."""
        if self == Undone() and not store.exists(_FILE):
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        trials = [dataclasses.replace(trial, when=trial.when or now) for trial in self.open]
        note = {"open": [dataclasses.asdict(trial) for trial in trials], "tracking": self.tracking}
        content = with_checksum(note)
        if not store.exists(_FILE) or store.read(_FILE) != content:
            store.write(_FILE, content)

    def after(self, trials: Iterable[OpenTrial], settled: Iterable[str], tracking: str) -> Undone:
        """Return what is left undone after one more run.

        Args:
            trials: The trials that this run has left open.
            settled: The names of arms whose other trials were all tried, or that the study no longer has.
            tracking: Why MLflow is behind now; empty if it is not.
        """
        done = set(settled)
        left = {trial.key: trial for trial in self.open if trial.arm not in done}
        return Undone((*{**left, **{trial.key: trial for trial in trials}}.values(),), tracking)
