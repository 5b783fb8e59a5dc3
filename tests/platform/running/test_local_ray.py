"""A Ray of this machine's own: who can reach it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rows = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]

_LISTENS = "0A"
# As the kernel writes them: 127.0.0.1, the same within IPv6, and ::1.
_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes and sockets in /proc"
)


def listening(pid: int) -> list[str]:
    """Return the local addresses, as the kernel writes them, that a process listens on."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.update(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
        except OSError:  # closed meanwhile
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENS and inode in sockets:
                found.append(local.partition(":")[0])
    return found


def test_everything_listens_on_loopback_alone(lab: Any, rows: Rows, until: Until, tmp_path: Path) -> None:
    process = lab.start("run", "lab:slow", "--store", tmp_path, "--workers", "2")
    until(lambda: (tmp_path / "lab").exists() and len(rows(tmp_path)) >= 2, "two trials")
    found = {pid: (name, listening(pid)) for pid, name in lab.running().items()}
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    for kind in ("gcs_server", "raylet", "ray::"):
        assert any(kind in name and addresses for name, addresses in found.values()), kind
    assert found[process.pid][1], "the driver listens to its workers"
    outside = {name: far for name, all_ in found.values() if (far := set(all_) - set(_LOOPBACK))}
    assert not outside
