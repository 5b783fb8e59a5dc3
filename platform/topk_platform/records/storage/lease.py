"""The right to drive a study. One process at a time holds it, by creating files with increasing numbers."""

from __future__ import annotations

import json
import os
import platform
import re
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from topk_platform.errors import StoreError
from topk_platform.records.storage.store import Store

__all__ = ["Holder", "Lease", "check_undriven", "driven", "is_driven", "strays", "unless_ended"]

_FOLDER = "lease"
_NUMBERED = re.compile(r"\d{12}\.json")
_SECONDS = 30.0


@dataclass(frozen=True)
class Holder:
    """A process that drives a study.

    Args:
        host: Its machine's name.
        pid: Its process id there.
        since: When it began, in ISO 8601.
        machine: Identifies the machine, its boot and its container; empty if the system does not say.
        born: When the process began, which distinguishes it from a later process with the same id.
        seen: When it last renewed its lease, in ISO 8601 by its own clock; for people only.
    """

    host: str
    pid: int
    since: str
    machine: str
    born: str
    seen: str = ""

    @classmethod
    def me(cls) -> Holder:
        """Return this process."""
        pid = os.getpid()
        return cls(platform.node(), pid, _now(), _machine(), _born(pid))

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine, where this process can see it."""
        return bool(self.machine) and self.machine == _machine()

    @property
    def is_alive(self) -> bool:
        """Whether the process is alive; only valid on its own machine."""
        return _born(self.pid) == self.born

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _machine() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    return ""


def _born(pid: int) -> str:
    """Return when a process of this machine began, in the kernel's ticks; empty if it does not exist."""
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if status[0] == "Z" else status[19]
    return ""


class Lease:
    """The right to drive a study, held by renewing it.

    The lease is a file with a number. It is renewed by creating the file with the next number, which only one process
    can do, so neither a lock nor a shared clock is needed: a holder that was not seen renewing the lease for
    ``seconds`` has lost it. For a holder on this machine, the list of processes decides instead.

    Args:
        store: The study's folder.
        seconds: How long a lease lasts without being renewed.

    Attributes:
        lost: Why another process holds the lease now; None if this process has not lost it.
    """

    def __init__(self, store: Store, seconds: float = _SECONDS) -> None:
        self._store = store
        self._seconds = seconds
        self._number = 0
        self._holder = Holder.me()
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self.lost: str | None = None

    def __enter__(self) -> Lease:
        """Take the lease.

        Raises:
            StoreError: if another process holds it.
        """
        number, holder = _newest(self._store)
        if holder is not None and self._is_held(number, holder):
            raise _taken(self._store, holder)
        self._number = number
        if not self._next():
            raise _taken(self._store, _newest(self._store)[1])
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._renewing.join()
        if self.lost is None:
            with suppress(StoreError):  # it expires by itself
                self._store.delete(_name(self._number))

    def _is_held(self, number: int, holder: Holder) -> bool:
        if holder.is_here:
            return holder.is_alive
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            time.sleep(self._seconds / 30)
            now, _ = _newest(self._store)
            if now != number:
                return now > number
        return False

    def _next(self) -> bool:
        """Create the file of the next number and delete those before it."""
        content = json.dumps(asdict(replace(self._holder, seen=_now()))).encode()
        if not self._store.create(_name(self._number + 1), content):
            return False
        self._number += 1
        names = _numbered(self._store)
        self._store.delete(*(f"{_FOLDER}/{name}" for name in names if name < _base(self._number)))
        return True

    def _renew(self) -> None:
        while not self._released.wait(self._seconds / 3):
            # While the store is down, the lease may expire, and another process may take it.
            with suppress(StoreError):
                if not self._next() and not self._is_own():
                    self.lost = f"another process has taken over: {_newest(self._store)[1]}"
                    return

    def _is_own(self) -> bool:
        """Return whether the newest lease is that of this process, and note its number.

        That is so if a store has created the file of a renewal, but its answer was lost.
        """
        number, holder = _newest(self._store)
        if holder is None or replace(holder, seen="") != self._holder:
            return False
        self._number = number
        return True


def check_undriven(store: Store) -> None:
    """Check that no process of this machine drives the study of a folder, without taking the lease.

    Callers use it before costly work. A process on another machine is only detected when the lease is taken, within
    half a minute.

    Raises:
        StoreError: if a process of this machine drives the study, or the store cannot be read.
    """
    _, holder = _newest(store)
    if holder is not None and holder.is_here and holder.is_alive:
        raise _taken(store, holder)


def _taken(store: Store, holder: Holder | None) -> StoreError:
    return StoreError(f"store {store.uri!r} is being written by another process: {holder}")


def driven(store: Store) -> str:
    """Return in words who drives the study of a folder.

    The call does not wait, so it cannot say whether a process on another machine still runs.

    Raises:
        StoreError: if the store cannot be read.
    """
    _, holder = _newest(store)
    if holder is None:
        return "nobody drives it"
    if holder.is_here and not holder.is_alive:
        return f"nobody drives it: {holder}, ended without releasing its lease"
    return f"driven by {holder}{'' if holder.is_here else unless_ended(holder.seen)}"


def is_driven(store: Store) -> bool:
    """Return whether a process drives the study of a folder.

    The call does not wait. A process on another machine therefore counts as running as long as its lease is there.

    Raises:
        StoreError: if the store cannot be read.
    """
    _, holder = _newest(store)
    return holder is not None and (not holder.is_here or holder.is_alive)


def unless_ended(seen: str) -> str:
    """Return the words that say since when there has been no sign of life from a driver on another machine.

    Args:
        seen: The time of its last sign of life; may be empty.

    Example:
        >>> print("driven" + unless_ended("2026-01-01T00:00:00+00:00"))
        driven, unless it has ended since it last renewed its lease, at 2026-01-01T00:00:00+00:00
    """
    return f", unless it has ended since it last renewed its lease{f', at {seen}' if seen else ''}"


def _base(number: int) -> str:
    return f"{number:012d}.json"


def _name(number: int) -> str:
    return f"{_FOLDER}/{_base(number)}"


def strays(store: Store) -> list[str]:
    """Return the foreign files in the folder of a study's lease; they are ignored."""
    return [f"{_FOLDER}/{name}" for name in store.names(_FOLDER) if not _NUMBERED.fullmatch(name)]


def _numbered(store: Store) -> list[str]:
    """Return the names of lease files; other files in their folder are ignored."""
    return [name for name in store.names(_FOLDER) if _NUMBERED.fullmatch(name)]


def _newest(store: Store) -> tuple[int, Holder | None]:
    """Return the number of the newest lease and its holder; 0 and None if there is none."""
    while names := _numbered(store):
        with suppress(FileNotFoundError):  # it was renewed meanwhile, so read the next file
            return int(names[-1].partition(".")[0]), _holder(store.read(f"{_FOLDER}/{names[-1]}"))
    return 0, None


def _holder(content: bytes) -> Holder:
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):  # an incomplete file: waiting shows whether it is renewed
        return Holder("an unknown machine", 0, "unknown", "", "")
