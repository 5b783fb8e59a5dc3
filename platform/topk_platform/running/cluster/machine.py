"""One machine's cores, and its GPUs as trials get them: whole ones, slices of MIG, and shares of either."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from topk_platform.errors import BrokenDeviceError, FaultError, SmallShareError
from topk_platform.specs import Study, TrialRecord

__all__ = [
    "KIND",
    "OWN_BYTES",
    "cap_memory",
    "fitting",
    "local_cpus",
    "local_workers",
    "memory_part",
    "outside_fault",
    "slices_here",
    "trial_resources",
]

OWN_BYTES = 2**30
"""The memory of a GPU that a process holds beside its tensors: CUDA's context, kernels, libraries' workspaces."""

KIND = "accelerator_type:"
"""The beginning of the names of Ray's resources for kinds of GPUs."""

_UNITS = 10_000  # the parts in which Ray counts; rounding up could make one trial fewer fit
_NO_MEMORY = re.compile(r"out of memory|_ALLOC_FAILED", re.IGNORECASE)
_NO_MPS = re.compile(r"\bMPS (client|server)\b")


def memory_part(share: float, total: int) -> float:
    """Return the part of a GPU's memory that a trial's tensors may take.

    The rest of its share, :data:`OWN_BYTES`, is for the other memory of its process; it is half of the share if the
    share is smaller than twice that.

    Args:
        share: The trial's part of the GPU, in (0, 1].
        total: The GPU's bytes.

    Example:
        >>> memory_part(0.25, 80 * 2**30), memory_part(0.1, 8 * 2**30), memory_part(1.0, 8 * 2**30)
        (0.2375, 0.05, 1.0)
    """
    return 1.0 if share >= 1 else max(share - OWN_BYTES / total, share / 2)


def cap_memory(share: float) -> None:
    """Keep this process's tensors from taking more of the GPU's memory than a trial's share; 1 removes the limit.

    Args:
        share: The trial's part of the GPU, in (0, 1].
    """
    import torch  # noqa: PLC0415 - most of this module is used without torch

    total = torch.cuda.get_device_properties().total_memory
    torch.cuda.set_per_process_memory_fraction(memory_part(share, total))


def outside_fault(records: Iterable[TrialRecord], share: float) -> FaultError | None:
    """Return the fault that made trials fail on a GPU that they share; None if there is none.

    The share of a GPU is not a part of a trial's definition. So a trial that needs more memory than its share has no
    result yet: it may train with a larger share. An error of MPS is not a result either, because another client of MPS
    may have caused it.

    Args:
        records: The records of trials that trained together.
        share: Their part of the GPU, in (0, 1].
    """
    failed = [record for record in records if record.status == "failed" and record.trial.device == "cuda"]
    for record in failed:
        if _NO_MPS.search(record.reason):
            return BrokenDeviceError(record.reason)
        if share < 1 and _NO_MEMORY.search(record.reason):
            return SmallShareError(f"it takes more memory than {share:g} of a GPU: {record.reason}")
    return None


def slices_here() -> list[str]:
    """Return the slices of MIG that ``CUDA_VISIBLE_DEVICES`` names; a process can use one of them at a time."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [name.strip() for name in named if name.strip().startswith("MIG-")]


def local_cpus(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: those that it is bound to, or fewer if its processor time is limited.

    Limits are those of containers and of slices of systemd, by control groups of version 2: that of this process's
    group and those of all groups above it.

    Args:
        root: The folder that contains ``proc`` and ``sys``.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    group = PurePosixPath("/")
    with suppress(OSError):  # a system without control groups
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        group /= next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")
    for each in (group, *group.parents):
        with suppress(OSError, ValueError):  # not visible in this container, or without a limit ("max")
            limit = root / "sys/fs/cgroup" / each.relative_to("/") / "cpu.max"
            time, period = map(int, limit.read_text().split())
            cores = min(cores, time // period)
    return max(1, cores)


def trial_resources(study: Study) -> dict[str, float]:
    """Return the Ray resources of one trial.

    Ray counts a GPU in ten thousandths. A trial that needs a certain kind of GPU also takes a thousandth of Ray's
    resource for that kind, of which each machine with such GPUs has one unit.

    Example:
        >>> from dataclasses import replace
        >>> from topk_studies import digits
        >>> trial_resources(digits()), trial_resources(replace(digits(), device="cuda", gpus=1 / 6))
        ({'CPU': 1}, {'CPU': 1, 'GPU': 0.1666})
        >>> trial_resources(replace(digits(), device="cuda", accelerator="L4"))
        {'CPU': 1, 'GPU': 1.0, 'accelerator_type:L4': 0.001}
    """
    needs: dict[str, float] = {"CPU": study.threads}
    if study.device == "cuda":
        needs["GPU"] = max(math.floor(_UNITS * study.gpus + 1e-6), 1) / _UNITS
    if study.accelerator:
        needs[f"{KIND}{study.accelerator}"] = 0.001
    return needs


def local_workers(study: Study) -> int:
    """Return how many trials of a study run here at once by default; at least 1."""
    trials = fitting(local_cpus(), study.threads)
    if study.device == "cuda":
        import torch  # noqa: PLC0415 - as above

        trials = min(trials, fitting(len(slices_here()) or torch.cuda.device_count(), study.gpus))
    return max(1, trials)


def fitting(available: float, amount: float) -> int:
    """Return how many times an amount of a resource can be taken. A part of a unit never spans two units.

    Args:
        available: How many units there are, such as GPUs.
        amount: How many units are taken at a time, or which part of one.

    Example:
        >>> fitting(8, 3), fitting(2, 0.25), fitting(2, 0.6)
        (2, 8, 2)
    """
    if amount >= 1:
        return int(available / amount + 1e-9)
    return int(available) * int(1 / amount + 1e-9) + int(available % 1 / amount + 1e-9)
