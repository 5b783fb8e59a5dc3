"""Folders for temporary files, such as Ray's and Tune's: only their owner can enter them, and they end with the run."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from topk_platform.errors import UserError, reason
from topk_platform.running.own_ray.processes import started_with

__all__ = ["RAYS", "check_temporary", "ray_folder", "scratch_folder"]

RAYS = "r"
"""The name of Ray's folder in the folder of a run. It is short, because the paths of Unix sockets must be short."""

_PREFIX = "topk-"
_LOCK = ".topk-run.lock"
_PROBE_BYTES = 2**20
_SOCKET_BYTES = 107  # the longest path of a Unix socket
# The longest path that Ray adds to its folder, with a process id of seven digits.
_RAYS_BYTES = len("/session_2026-11-24_05-54-03_574123_1234567/sockets/plasma_store")


def check_temporary() -> None:
    """Check that the folders that ``RAY_TMPDIR`` and ``TMPDIR`` name, if set, can be used.

    Raises:
        UserError: if one of them cannot be written to, or no folder for temporary files can.
    """
    for name in ("RAY_TMPDIR", "TMPDIR"):
        if root := os.environ.get(name):
            _check_writable(name, Path(root))
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise UserError(f"no folder for temporary files can be written to: {reason(error)}") from error


def _check_writable(name: str, root: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=root, buffering=0) as file:
            if file.write(bytes(_PROBE_BYTES)) < _PROBE_BYTES:  # an almost full disk takes a part of a file
                file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise UserError(
            f"{name} must be a folder that can be written to, with some space left, got {str(root)!r}: {reason(error)}"
        ) from error


def ray_folder() -> Path:
    """Return the folder for the folders of our own Rays: ``RAY_TMPDIR``, or the system's folder for temporary files.

    Unix limits the paths of Ray's sockets to 107 bytes. If the path of the system's folder is too long for them, return
    ``/tmp``.

    Raises:
        UserError: if the path of ``RAY_TMPDIR`` is too long.
    """
    longest = _SOCKET_BYTES - _RAYS_BYTES - len(f"/{_PREFIX}12345678/{RAYS}")
    if named := os.environ.get("RAY_TMPDIR"):
        if len(os.fsencode(named)) > longest:
            raise UserError(
                f"RAY_TMPDIR must be at most {longest} bytes long, for Ray's sockets, got {named!r}"
            )
        return Path(named)
    root = tempfile.gettempdir()
    return Path(root if len(os.fsencode(root)) <= longest else "/tmp")  # noqa: S108 - what is created there is private


@contextmanager
def scratch_folder(root: Path | None = None) -> Iterator[str]:
    """Yield a new folder that its owner alone can enter, and delete it at the end.

    Folders of drivers that are gone, and whose other processes are gone too, are deleted as well. A lock in each folder
    says whether its driver lives; unlike a process id, this works across containers.

    Args:
        root: The folder in which it is created; by default the system's folder for temporary files.
    """
    root = root or Path(tempfile.gettempdir())
    for left in root.glob(f"{_PREFIX}*/"):
        _sweep(left)
    folder, lock = _locked(root)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _locked(root: Path) -> tuple[Path, FileLock]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        lock = FileLock(folder / _LOCK)
        with suppress(Timeout):  # another driver is deleting it, because it looked abandoned
            lock.acquire(timeout=0)
            if (folder / _LOCK).exists():
                return folder, lock
            lock.release()


def _sweep(folder: Path) -> None:
    if not _is_ours(folder) or any(
        started_with(str(folder))
    ):  # a driver was killed, and its Ray ends a little later
        return
    with (
        suppress(Timeout, OSError),
        FileLock(folder / _LOCK, timeout=0),
    ):  # held by its driver, or deleted meanwhile
        shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    """Return whether a folder was made here, by this user; nobody else can have put anything into it."""
    with suppress(OSError):
        status = folder.lstat()
        private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == stat.S_IRWXU
        return private and status.st_uid == os.getuid() and (folder / _LOCK).is_file()
    return False
