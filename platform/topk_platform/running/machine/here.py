"""What this machine offers to trials, found without Ray."""

from __future__ import annotations

import os

from topk_platform.specs import Study

__all__ = ["local_cpus", "local_workers"]


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
