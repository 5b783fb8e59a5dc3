"""The largest batches of a study's arms that fit into the memory of this machine's device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from topk_platform.errors import UserError
from topk_platform.specs import Arm, Study

__all__ = ["ArmProbe", "Probe", "probe"]

_GIB = 2**30


@dataclass(frozen=True)
class ArmProbe:
    """What a probe found for one arm.

    Args:
        arm: The arm.
        samples: How many samples its training split has.
        batch: The recipe's batch size, or the largest that is searched; at most ``samples``.
        largest: The largest batch that fits at once, found to within 1/16.
        accumulate: The least number of parts in which ``batch`` fits, or None.
        problem: Why nothing was found, or what does not fit with any batch size.
    """

    arm: Arm
    samples: int
    batch: int
    largest: int = 0
    accumulate: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class Probe:
    """What a probe found for a study.

    Args:
        study: The study.
        memory: Bytes that a trial was given; None for all that a GPU has free.
        arms: Its arms.
    """

    study: Study
    memory: int | None
    arms: tuple[ArmProbe, ...]


def probe(
    study: Study,
    *,
    only: str | Sequence[str] | None = None,
    memory: float | None = None,
    data: str | Path | None = None,
    report: Callable[[Arm], None] | None = None,
) -> Probe:
    """Return the largest batch of each of a study's arms that fits on this machine.

    Whole training steps are tried, including the optimiser's state: on a GPU in this process, on the CPU in a process
    with limited memory. Arms that need the same memory are tried once.

    Args:
        study: The study.
        only: A glob over arm names, ``regime/model/loss``, or several.
        memory: GiB for a trial: on a GPU by default all that is free, or the study's fraction of it; on the CPU what
            the machine has available, shared by as many trials as run at once.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        report: Called with each arm before it is tried.

    Raises:
        UserError: if something is wrong with the study or its data, memory is not above 0, this machine lacks the
            study's device, or is no Linux machine and the device the CPU.
    """
    if memory is not None and not memory > 0:
        raise UserError(f"memory must be above 0 GiB, got {memory}")
    study = study.only(only) if only else study
    # Torch, a second or two that what is wrong with the arguments need not wait for.
    from topk_platform.running.estimate.fitting import fitted  # noqa: PLC0415

    given, probes = fitted(study, None if memory is None else round(memory * _GIB), data, report)
    return Probe(study, given, tuple(probes[arm.name] for arm in study.arms))
