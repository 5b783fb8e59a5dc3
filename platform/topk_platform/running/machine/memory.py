"""Memory that this machine has for new processes."""

from __future__ import annotations

from pathlib import Path

from topk_platform.errors import UserError

__all__ = ["available_memory"]


def available_memory(root: Path = Path("/")) -> int:
    """Return how many bytes of memory new processes can have on this machine, or in this container.

    Args:
        root: Where ``proc`` and ``sys`` are.

    Raises:
        UserError: if the system does not say.
    """
    try:
        fields = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
    except OSError as error:
        raise UserError("this system does not say how much memory it has; say it with --memory") from error
    free = 1024 * int(fields["MemAvailable"].split()[0])
    group = root / "sys/fs/cgroup"
    try:
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or one without a limit, which says "max"
        return free
    return max(min(free, most - used + int(kept["inactive_file"])), 0)
