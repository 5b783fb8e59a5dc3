"""Where compiled kernels are kept, and what is said while they are compiled.

Numba looks at the module of a function alone to see whether what it has on disk is still true. Ours share functions, so
that they are kept under one stamp of all the package's kernels: a change to one of them compiles all anew.
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
VARIABLE = "TOPK_LOSSES_CACHE"  # of the environment: a folder for compiled kernels
PATIENCE = 1.0  # seconds of compiling before a word is said

log = logging.getLogger("topk_losses")


def keep_on_disk(kernel: Any) -> None:
    """Have a function's machine code read from disk, and written there, if there is any place for it."""
    if not hasattr(kernel, "py_func"):  # NUMBA_DISABLE_JIT leaves functions as they are
        return
    _announce()
    try:
        kernel._cache = _Cache(kernel.py_func)
    except RuntimeError:  # no folder can be written
        return
    _forget_what_cannot_be_read(kernel._cache)


def _forget_what_cannot_be_read(cache: Any) -> None:
    """Clear what an earlier version of a module has left on disk, if its arguments were of a class that is gone.

    Numba keeps the names of such classes in the index of a function's machine code, which it reads before it looks
    whether that is still true.
    """
    try:
        cache._cache_file._load_index()
    except (AttributeError, ImportError):
        cache.flush()


class _Locator(caching._CacheLocator):
    """The first folder that can be written: that of the environment, the package's own, the user's, a temporary one."""

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
    """A temporary folder that is this user's alone: what lies there is run."""
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
    """From now on, say so where compiling takes longer than a moment."""
    event.register("numba:compile", _Announcer())


class _Announcer(event.Listener):
    """Says once in a process that kernels are being compiled, when all of it has taken longer than a moment."""

    def __init__(self) -> None:
        self._depth = 0
        self._begun = self._spent = 0.0
        self._told = False
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        if not self._is_ours(event):
            return
        self._depth += 1
        if self._depth == 1 and not self._told:
            self._begun = time.monotonic()
            self._timer = threading.Timer(max(0.0, PATIENCE - self._spent), self._tell)
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

    def _tell(self) -> None:
        self._told = True
        log.warning(
            "topk_losses compiles its kernels for this processor: up to a quarter of a minute for a loss, once; later "
            "processes find them on disk"
        )
