"""A folder for what Ray Tune writes and nobody reads; those of drivers that were killed are swept."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["scratch_folder"]

_PREFIX = "topk-tune-"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Yield a new folder among the temporary ones, which is gone at the end; sweep those that nobody holds any more.

    A lock beside each says whether its driver lives, which holds between containers too, unlike a process id. It is
    taken before the folder is there, so that no other driver finds the folder without it.
    """
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{_PREFIX}*/"):
        _sweep(left)
    folder = root / f"{_PREFIX}{uuid.uuid4().hex}"
    with FileLock(_lock_of(folder)):
        folder.mkdir(mode=0o700)
        try:
            yield str(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _lock_of(folder).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _sweep(folder: Path) -> None:
    with suppress(Timeout, OSError):  # held by its driver, or another user's
        if folder.is_symlink() or not folder.is_dir():
            return
        with FileLock(_lock_of(folder), timeout=0):
            shutil.rmtree(folder)
            _lock_of(folder).unlink(missing_ok=True)
