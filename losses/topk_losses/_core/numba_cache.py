"""The disk cache of compiled kernels, and a log message while kernels are compiled.

Numba decides by a function's own module whether its machine code on disk is up to date. Our kernels call functions of
other modules, so all of them are stored with one hash of all kernel sources: a change of one compiles all anew.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core import caching, event

__all__ = ["keep_on_disk"]

PACKAGE = Path(__file__).parents[1]
VARIABLE = "TOPK_LOSSES_CACHE"  # environment variable: the folder for compiled kernels
PATIENCE = 1.0  # seconds of compiling before the message is logged

log = logging.getLogger("topk_losses")


def keep_on_disk(kernel: Any) -> None:
    """Read a function's machine code from disk and write it there, if any folder is writable."""
    if not hasattr(kernel, "py_func"):  # with NUMBA_DISABLE_JIT functions are not compiled
        return
    _announce()
    try:
        kernel._cache = _Cache(kernel.py_func)
    except RuntimeError:  # no folder is writable
        return
    _forget_what_cannot_be_read(kernel._cache)


def _forget_what_cannot_be_read(cache: Any) -> None:
    """Delete a cache entry that refers to a class that no longer exists.

    The index of a function's machine code names the classes of its arguments. Numba reads it before it checks whether
    the machine code is up to date, and fails if an earlier version of a module had a class that is gone.
    """
    try:
        cache._cache_file._load_index()
    except (AttributeError, ImportError):
        cache.flush()


class _Locator(caching._CacheLocator):
    """Finds the first writable folder: the environment's, the package's own, the user's cache, a temporary one."""

    def __init__(self, function: Any, folder: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._folder = folder

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        family = Path(py_file).parent
        for folder in _folders(family):
            locator = cls(py_func, folder)
            try:
                locator.ensure_cache_path()
            except OSError:
                continue
            return locator
        return None

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return _stamp()

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Cache(caching.FunctionCache):
    _impl_class = _Implementation


def _folders(family: Path) -> Iterator[Path]:
    own = f"{family.name}-{hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:12]}"
    for variable in (VARIABLE, "NUMBA_CACHE_DIR"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / own
    yield family / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "topk_losses" / own
    private = _private_folder()
    if private is not None:
        yield private / own


def _private_folder() -> Path | None:
    """A temporary folder that only this user can write to, because machine code found there is executed."""
    if not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir()) / f"topk_losses-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return None
    is_ours = state.st_uid == os.getuid() and not state.st_mode & 0o077 and not folder.is_symlink()
    return folder if is_ours else None


@functools.cache
def _stamp() -> str:
    state = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*kernels.py"), *PACKAGE.glob("_core/numba*.py")]):
        state.update(path.read_bytes())
    return state.hexdigest()


@functools.cache
def _announce() -> None:
    """From now on, log a message when compiling takes longer than ``PATIENCE``."""
    event.register("numba:compile", _Announcer())


class _Announcer(event.Listener):
    """Logs once per process that kernels are being compiled, when this has taken ``PATIENCE`` seconds in total."""

    def __init__(self) -> None:
        self._depth = 0
        self._begun = self._spent = 0.0
        self._warned = False
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        if not self._is_ours(event):
            return
        self._depth += 1
        if self._depth == 1 and not self._warned:
            self._begun = time.monotonic()
            self._timer = threading.Timer(max(0.0, PATIENCE - self._spent), self._warn)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        if not self._is_ours(event):
            return
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer, self._spent = None, self._spent + time.monotonic() - self._begun

    def _is_ours(self, event: Any) -> bool:
        module = getattr(getattr(event.data.get("dispatcher"), "py_func", None), "__module__", "")
        return str(module).startswith("topk_losses.")

    def _warn(self) -> None:
        self._warned = True
        log.warning(
            "topk_losses is compiling its kernels for this processor, once, up to 15 seconds per loss; later processes "
            "read them from disk"
        )
