"""What happens in a run, for those who watch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from topk_platform.specs import Trial, TrialRecord

__all__ = ["Event", "EventKind"]

EventKind = Literal["begun", "started", "ended", "again", "open", "cut"]
"""The run has begun, or trials have: started; ended with a record; stopped by a fault, to be tried again or left open;
been cut off because the time is used up."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a run.

    Args:
        kind: What.
        trials: The trials that it happened to; none at the begin.
        record: What came of the trial that has ended.
        why: The fault, in words; at the begin, why recorded trials do not count, if there are such.
        workers: How many are busy now.
        slots: At the begin, how many trials may run at once.
        seconds: At the begin, about how long a trial takes, or an ensemble, by arm identity, as far as that is known.

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
    seconds: Mapping[str, float] = field(default_factory=dict)
