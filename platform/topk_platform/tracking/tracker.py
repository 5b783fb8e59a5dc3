"""The interface of trackers, in which people look at trials and compare them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from topk_platform.specs import Phase, Scalar, Status

__all__ = [
    "ArmResult",
    "Dataset",
    "Extras",
    "Point",
    "StudyResult",
    "TrackedStudy",
    "TrackedTrial",
    "Tracker",
]


@dataclass(frozen=True)
class TrackedStudy:
    """The study that a tracker is filled with.

    Args:
        name: The study's name.
        identity: The identity of its ledger. Two studies of one name in two stores have different ones.
        folder: The store's folder if it is on this machine, where a tracker may keep files; else None.
        progressed: A function that a tracker calls after each step of slow work. At the end of a run, the driver waits
            for a tracker only as long as it makes progress.
    """

    name: str
    identity: str
    folder: Path | None = None
    progressed: Callable[[], None] = field(default=lambda: None, compare=False)


class Dataset(NamedTuple):
    """A trial's data.

    Attributes:
        name: The dataset's name.
        options: Its options, as JSON.
        regime: The regime's name.
        fingerprint: The fingerprint of the data before conditions.
    """

    name: str
    options: str
    regime: str
    fingerprint: str


class Point(NamedTuple):
    """The values of one epoch.

    Attributes:
        epoch: The epoch, counted from 1.
        milliseconds: When the epoch ended, in ms since 1970.
        values: The training loss, the learning rate and validation accuracies, by name.
    """

    epoch: int
    milliseconds: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class TrackedTrial:
    """An ended trial, with the values that a tracker shows.

    Args:
        key: The trial's key. No two trials have the same.
        arm: The arm's name, ``regime/model/loss``.
        arm_id: The arm's identity.
        regime: The regime's name.
        model: The model's label.
        loss: The loss's label.
        phase: ``"search"`` or ``"confirm"``.
        number: The search trial's number; for a confirmation, the number of the trial that it confirms.
        seed: 0 in the search, 1, 2, ... in confirmations.
        status: How the trial ended.
        reason: Why it failed or diverged; else empty.
        group: The name of its configuration without the seed. The confirmations of one configuration have the same
            group, so that a tracker can show their mean.
        parameters: The searched and the fixed values: the loss's parameters, k, epochs and the recipe.
        metrics: The results at the end: ``train_seconds``, the last validation, and ``test.NAME`` of confirmations.
        curve: The values by epoch, at most 120 in all.
        started: When the trial started.
        ended: When it ended.
        dataset: Its data.
        config: All that determines the trial, as JSON.
        code_version: The version of the code that it executed.
        network: A function that returns the confirmed network's safetensors file, or None if the trial has none.
    """

    key: str
    arm: str
    arm_id: str
    regime: str
    model: str
    loss: str
    phase: Phase
    number: int
    seed: int
    status: Status
    reason: str
    group: str
    parameters: Mapping[str, Scalar]
    metrics: Mapping[str, float]
    curve: Sequence[Point]
    started: datetime
    ended: datetime
    dataset: Dataset
    config: str
    code_version: str
    network: Callable[[], bytes | None] = field(default=lambda: None, compare=False)

    @property
    def name(self) -> str:
        """A name for people, such as ``clean/mlp/ldam confirm 3.1``."""
        return f"{self.arm} {self.phase} {self.number}.{self.seed}"

    @property
    def began(self) -> int:
        """When the trial started, in whole seconds since 1970, see :meth:`Tracker.started`."""
        return int(self.started.timestamp())


class ArmResult(NamedTuple):
    """The results of an arm.

    Attributes:
        name: The arm's name, ``regime/model/loss``.
        parameters: The confirmed configuration.
        metrics: For each test metric, the mean, the half-width of its 95 % interval, and the number of seeds.
        note: The same for people, in Markdown.
        dataset: The arm's data.
    """

    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, float]
    note: str
    dataset: Dataset


Extras = Mapping[str, bytes]
"""The report and the plots of a study, by file name; making them takes seconds or minutes."""


@dataclass(frozen=True)
class StudyResult:
    """The results of a study as they stand at the end of a run.

    Args:
        files: The text files of the study's tables, by name, such as ``table.md``.
        digest: The hash of these files; if it is the same, nothing has changed.
        arms: The results of each arm, by the arm's identity.
        extras: A function that makes the report and the plots. If that fails, it warns and returns None. None
            instead of a function: nothing is made.
    """

    files: Mapping[str, str]
    digest: str
    arms: Mapping[str, ArmResult] = field(default_factory=dict)
    extras: Callable[[], Extras | None] | None = None


class Tracker(ABC):
    """A program in which people look at trials and compare them, such as MLflow, TensorBoard or Weights & Biases.

    A tracker decides nothing: results come from the ledger alone, and a tracker can be filled from it at any time. Its
    methods are called in a thread of their own, one at a time. An error in one of them is reported, never ends the
    study, and is followed by :meth:`close` and, after a pause, by :meth:`begin`. After :meth:`begin`, every trial that
    the tracker lacks is handed over again, so a trial must be either complete in the tracker or not listed by
    :meth:`begin`.

    To select a subclass by its name, list it in a package's entry point group ``topk.trackers``. The platform calls the
    subclass with the location that follows the name in ``--track NAME=LOCATION``, or with None.
    :class:`topk_platform.testing.TrackerContract` tests a subclass.

    Attributes:
        title: Its name for people, as messages use it.
    """

    title: str

    def check(self, study: TrackedStudy) -> None:  # noqa: B027 - there may be nothing to check
        """Raise ``UserError`` if the tracker cannot be used. It is called before anything is trained."""

    @abstractmethod
    def begin(self, study: TrackedStudy) -> Iterable[str]:
        """Open the study in the tracker; return the keys of the trials that it holds completely.

        It must delete the trials that a kill left incomplete.

        Args:
            study: The study.
        """

    def started(self) -> Mapping[str, int]:
        """Return when the trials that :meth:`begin` listed started, by key, as :attr:`TrackedTrial.began` says it.

        A trial that is trained again keeps its key and has another start. If the tracker was not attached meanwhile, it
        still shows the earlier result. Where the two starts differ, the trial is removed and handed over again. A key
        that is left out stays as it is; by default all are.
        """
        return {}

    @abstractmethod
    def remove(self, keys: Collection[str]) -> None:
        """Delete trials.

        Args:
            keys: The trials' keys, each of which :meth:`begin` listed.
        """

    @abstractmethod
    def trial_ended(self, trial: TrackedTrial) -> None:
        """Write an ended trial with its curve.

        Args:
            trial: The trial.
        """

    @abstractmethod
    def study_ended(self, result: StudyResult) -> None:
        """Write the results of the study. It is called at the end of a run, even if the run was interrupted.

        Args:
            result: The results; the same ones may come again.
        """

    def close(self) -> None:  # noqa: B027 - there may be nothing to close
        """End all connections. It is called at the end and after an error."""
