"""The result of a probe: the largest batches of a study's arms that fit into the memory of this machine's device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topk_platform.errors import UserError
from topk_platform.specs import Arm, Study

__all__ = ["ArmProbe", "Probe", "arms_to_probe"]


@dataclass(frozen=True)
class ArmProbe:
    """The result of a probe for one arm.

    Args:
        arm: The arm.
        samples: How many samples its training split has.
        batch: The recipe's batch size, or the largest that is searched; at most ``samples``.
        largest: The largest batch that fits at once, to within 1/16.
        accumulate: The least number of parts in which ``batch`` fits, or None.
        problem: Why there is no result, or what does not fit with any batch size; empty if there is no problem.
    """

    arm: Arm
    samples: int
    batch: int
    largest: int = 0
    accumulate: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class Probe:
    """The results of a probe for a study.

    Args:
        study: The study.
        memory: Bytes that a trial was given; None for all that a GPU has free.
        arms: Its arms.
    """

    study: Study
    memory: int | None
    arms: tuple[ArmProbe, ...]


def arms_to_probe(study: Study, only: str | Sequence[str] | None, memory: float | None) -> Study:
    """Return the study with the arms to probe; raise ``UserError`` for wrong arguments, before torch is imported."""
    if memory is not None and not memory > 0:
        raise UserError(f"memory must be above 0 GiB, got {memory}")
    return study.only(only) if only else study
