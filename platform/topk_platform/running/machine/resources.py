"""The cores, workers and memory that this machine offers to trials, determined without Ray."""

from __future__ import annotations

import os
from pathlib import Path

from topk_platform.errors import UserError
from topk_platform.specs import Study

__all__ = ["available_memory", "local_cpus", "local_workers"]


def local_cpus() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_workers(study: Study) -> int:
    """Return how many trials of a study run here at once by default; at least 1."""
    trials = local_cpus() / study.threads
    if study.device == "cuda":
        from topk_platform.running.machine.devices import gpu_count  # noqa: PLC0415 - torch, a second or two

        trials = min(trials, gpu_count() / study.gpu_share)
    return max(1, int(trials + 1e-9))


def available_memory(root: Path = Path("/")) -> int:
    """Return how many bytes of memory new processes can have on this machine, or in this container.

    Args:
        root: The folder that contains ``proc`` and ``sys``.

    Raises:
        UserError: if the system does not report its memory.
    """
    try:
        fields = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
    except OSError as error:
        raise UserError("this system does not report its memory: give --memory") from error
    free = 1024 * int(fields["MemAvailable"].split()[0])
    group = root / "sys/fs/cgroup"
    try:
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return free
    return max(min(free, most - used + int(kept["inactive_file"])), 0)
