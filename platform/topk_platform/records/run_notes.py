"""What a run notes in a study's folder for other commands: trials that it leaves open, and facts about the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from topk_platform.records.storage.checked_json import read_checked, with_checksum
from topk_platform.records.storage.store import Store

__all__ = ["DataNote", "OpenTrial", "Samples", "Unfinished", "lines_on_data", "note_data", "read_data"]

_DATA = "data.json"
_LEFT = "undone.json"


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
class Unfinished:
    """What the runs of a study have left undone.

    Args:
        open: Trials without a result. A trial may have ended since, in a run that was cut off.
        tracking: Why MLflow is behind; empty if it is not.
    """

    open: tuple[OpenTrial, ...] = ()
    tracking: str = ""

    @classmethod
    def read(cls, store: Store) -> Unfinished:
        """Return the note in a study's folder; empty if there is none.

        Raises:
            StoreError: if it cannot be read.
        """
        return read_checked(store, _LEFT, cls._of) or cls()

    @classmethod
    def _of(cls, note: Mapping[str, Any]) -> Unfinished:
        return cls(tuple(OpenTrial(**fields) for fields in note["open"]), note["tracking"])

    def note(self, store: Store) -> None:
        """Write this to a study's folder if it differs from the last note."""
        if self == Unfinished() and not store.exists(_LEFT):
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        trials = [dataclasses.replace(trial, when=trial.when or now) for trial in self.open]
        note = {"open": [dataclasses.asdict(trial) for trial in trials], "tracking": self.tracking}
        content = with_checksum(note)
        if not store.exists(_LEFT) or store.read(_LEFT) != content:
            store.write(_LEFT, content)

    def after(self, trials: Iterable[OpenTrial], settled: Iterable[str], tracking: str) -> Unfinished:
        """Return what is left undone after one more run.

        Args:
            trials: The trials that this run has left open.
            settled: The names of arms whose other trials were all tried, or that the study no longer has.
            tracking: Why MLflow is behind now; empty if it is not.
        """
        done = set(settled)
        left = {trial.key: trial for trial in self.open if trial.arm not in done}
        return Unfinished((*{**left, **{trial.key: trial for trial in trials}}.values(),), tracking)


@dataclass(frozen=True)
class Samples:
    """A regime's numbers of samples, after its conditions.

    Args:
        regime: The regime's name.
        train: Training samples.
        validation: Validation samples, which choose configurations and epochs.
        test: Test samples.
        classes: The number of classes.
        fewest: Training samples of the rarest class.
        most: Training samples of the most frequent class.
        groups: How many groups the test samples form, such as ``"160 typefaces"``; empty if that is not known.
        shots: How many classes are many-, medium- and few-shot, in words.
        wrong: The share of the training samples whose label a condition changed, as counted in the data.
    """

    regime: str
    train: int
    validation: int
    test: int
    classes: int
    fewest: int
    most: int
    groups: str = ""
    shots: str = ""
    wrong: float = 0.0

    def __str__(self) -> str:
        groups = f" of {self.groups}" if self.groups else ""
        return (
            f"trained with {self.train}, validated with {self.validation}, tested with {self.test} "
            f"samples{groups}; {self.classes} classes of {self.each} training sample{'s' * (self.each != '1')}"
            f"{'; ' if self.shots else ''}{self.shots}"
            f"{f'; {self.wrong:.1%} of the training labels are wrong' if self.wrong else ''}"
        )

    @property
    def each(self) -> str:
        """The training samples of a class, such as ``"20"`` or ``"3 to 6"``."""
        return f"{self.fewest}" if self.fewest == self.most else f"{self.fewest} to {self.most}"


@dataclass(frozen=True)
class DataNote:
    """The note on a regime's data.

    Args:
        samples: The numbers of samples.
        names: The names of the classes; empty if the dataset has none.
        notes: Sentences on the data that a user should know, such as on classes that a split lacks.
    """

    samples: Samples
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def lines_on_data(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each different text, after the names of the regimes for which it holds.

    Example:
        >>> lines_on_data([("clean", "ten classes"), ("tail", "ten classes")])
        ['clean, tail: ten classes']
    """
    regimes: dict[str, list[str]] = {}
    for regime, text in texts:
        regimes.setdefault(text, []).append(regime)
    return [f"{', '.join(names)}: {text}" for text, names in regimes.items()]


def note_data(store: Store, notes: Mapping[str, DataNote]) -> None:
    """Write notes on regimes into a study's folder. They replace earlier notes on the same regimes."""
    before = read_data(store)
    if (now := {**before, **notes}) != before:
        content = {name: dataclasses.asdict(note) for name, note in now.items()}
        store.write(_DATA, with_checksum(content))


def read_data(store: Store) -> dict[str, DataNote]:
    """Return the note on each regime of a study, by the regime's name. Regimes that no run has noted are missing.

    Raises:
        DamagedError: if the file is damaged.
        StoreError: if it cannot be read.
    """
    return read_checked(store, _DATA, lambda content: {n: _note(f) for n, f in content.items()}) or {}


def _note(fields: Mapping[str, Any]) -> DataNote:
    texts = {name: tuple(fields.get(name, ())) for name in ("names", "notes")}
    return DataNote(Samples(**fields["samples"]), **texts)
