"""The events of a run, for those who watch it, and what faults leave undone in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from topk_platform.records import OpenTrial
from topk_platform.running.machine.gpu_use import GpuSample
from topk_platform.specs import Trial, TrialRecord

__all__ = ["Event", "EventKind", "Faults"]

EventKind = Literal["begun", "started", "ended", "again", "open", "cut", "progress"]
"""The kind of an event:

- ``begun``: the run began;
- ``started``: trials started;
- ``ended``: a trial ended and has a record;
- ``again``: a fault stopped trials, which will be tried again;
- ``open``: a fault stopped trials, which stay without a result for now;
- ``cut``: trials were cut off because the time is used up, or an event could not be passed on;
- ``progress``: a trial reported its epoch, its curve and how busy its GPU is; only the run's ``Watch`` gets this one.
"""


@dataclass(frozen=True)
class Event:
    """An event of a run.

    Args:
        kind: What happened.
        trials: The trials concerned; none when the run begins.
        record: The record of the trial that ended.
        why: The fault in words; when the run begins, why some recorded trials do not count, if any.
        workers: How many workers are busy now.
        slots: When the run begins: how many trials may run at once.
        gpus: When the run begins: how many GPUs the cluster has.
        sample: How busy the trial's GPU is, if this was measured.
        epoch: How many epochs of the trials have ended.
        curve: The selection metric after each validated epoch; for an ensemble, that of its first trial.

    Example:
        >>> Event("begun", slots=2).kind
        'begun'
    """

    kind: EventKind
    trials: tuple[Trial, ...] = ()
    record: TrialRecord | None = None
    why: str = ""
    workers: int = 0
    slots: int = 0
    gpus: float = 0.0
    sample: GpuSample | None = None
    epoch: int = 0
    curve: tuple[float, ...] = ()


@dataclass
class Faults:
    """The work that the faults of a run left undone.

    Args:
        open: The trials left without a result after all tries.
        unsaved: Why the networks of some trials could not be kept, by the trials' keys; their results are kept.
        ended: Why the run ended before all trials had been tried; empty if it did not.
    """

    open: list[OpenTrial] = field(default_factory=list)
    unsaved: dict[str, str] = field(default_factory=dict)
    ended: str = ""
