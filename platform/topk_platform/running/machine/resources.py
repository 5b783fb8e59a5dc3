"""The cores and workers that this machine offers to trials, determined without Ray."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path, PurePosixPath

from topk_platform.specs import Study

__all__ = ["fitting", "local_cpus", "local_workers"]

_ROOT = Path("/")


def local_cpus(root: Path = _ROOT) -> int:
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


def local_workers(study: Study) -> int:
    """Return how many trials of a study run here at once by default; at least 1."""
    trials = fitting(local_cpus(), study.threads)
    if study.device == "cuda":
        from topk_platform.running.machine.devices import gpu_count  # noqa: PLC0415 - torch, a second or two

        trials = min(trials, fitting(gpu_count(), study.gpus))
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
