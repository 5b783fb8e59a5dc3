"""The cores and workers that this machine offers to trials, determined without Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from topk_platform.specs import Study

__all__ = ["fitting", "local_cpus", "local_workers"]

_ROOT = Path("/")


def local_cpus(root: Path = _ROOT) -> int:
    """Return how many cores this process may use: those that it is bound to, or fewer if its processor time is limited.

    Limits are those of containers and of slices of systemd, by control groups of version 2.

    Args:
        root: The folder that contains ``proc`` and ``sys``.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *_cores_of_groups(root)]))


def _cores_of_groups(root: Path) -> Iterator[int]:
    """Yield the whole cores whose time each limit on this process allows."""
    for files in _groups(root):
        with suppress(OSError, ValueError):  # not visible in this container, or without a limit ("max")
            time, period = map(int, (files / "cpu.max").read_text().split())
            yield time // period


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


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control group and of all groups above it."""
    own = PurePosixPath(_own_group(root))
    for group in (own, *own.parents):
        yield root / "sys/fs/cgroup" / group.relative_to("/")


def _own_group(root: Path) -> str:
    """Return the path of this process's control group of version 2; the topmost one if there is none."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # a system without control groups
        return "/"
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
