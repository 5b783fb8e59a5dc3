"""What a run changes in its own process and undoes: variables, signals, and folders for temporary files."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from topk_platform.errors import UserError, reason

__all__ = ["end", "in_variables", "interrupts_wait", "scratch_folder"]

_PREFIX = "topk-"
_LOCK = ".topk-run.lock"
_NEEDED_BYTES = 2**20
_END_SECONDS = 5.0
# The longest path of a Unix socket, less what Ray adds to its folder, with a process id of seven digits.
_LONGEST = 107 - len("/topk-12345678/r/session_2026-11-24_05-54-03_574123_1234567/sockets/plasma_store")


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Yield a new folder that its owner alone can enter, and delete it at the end.

    It is created in ``RAY_TMPDIR``, or in the system's folder for temporary files. Unix limits the paths of Ray's
    sockets to 107 bytes. If the path of the system's folder is too long for them, it is created in ``/tmp``.

    Folders of drivers that are gone, and whose other processes are gone too, are deleted as well. A lock in each folder
    says whether its driver lives; unlike a process id, this works across containers.

    Raises:
        UserError: if the folder cannot be made, or has no space left.
    """
    root = Path("TMPDIR")
    try:
        root = _root()
        _sweep(root)
        # It gets its name once its lock is held, because another driver would delete it otherwise.
        unnamed = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=root))
        with tempfile.TemporaryFile(dir=unnamed) as file:
            file.write(bytes(_NEEDED_BYTES))
    except OSError as error:
        raise UserError(
            f"the folder for temporary files, {root}, must be one that can be written to, with some space "
            f"left: {reason(error)}. RAY_TMPDIR or TMPDIR names another"
        ) from error
    with FileLock(unnamed / _LOCK):
        folder = unnamed.rename(root / unnamed.name.removeprefix("."))
        try:
            yield str(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _root() -> Path:
    if named := os.environ.get("RAY_TMPDIR"):
        return Path(named)
    root = tempfile.gettempdir()
    return Path(root if len(os.fsencode(root)) <= _LONGEST else "/tmp")  # noqa: S108 - what is created there is private


def _sweep(root: Path) -> None:
    for left in root.glob(f"{_PREFIX}*/"):
        # The Ray of a driver that was killed ends a little later.
        if _is_ours(left) and not any(_started_with(str(left))):
            # The lock may be held by its driver, or deleted meanwhile.
            with suppress(Timeout, OSError), FileLock(left / _LOCK, timeout=0):
                shutil.rmtree(left)


def _is_ours(folder: Path) -> bool:
    """Return whether a folder was made here, by this user; nobody else can have put anything into it."""
    with suppress(OSError):
        status, private = folder.lstat(), stat.S_IFDIR | stat.S_IRWXU
        return (status.st_mode, status.st_uid) == (private, os.getuid()) and (folder / _LOCK).is_file()
    return False


def _started_with(path: str) -> Iterator[psutil.Process]:
    """Yield the other processes whose command lines contain a path."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # another user's, or it has ended meanwhile
            if process.pid != os.getpid() and any(path in word for word in process.cmdline()):
                yield process


def end(path: str) -> None:
    """Kill the processes whose command lines contain a path, with all that they have started; wait for their end."""
    processes = list(_started_with(path))
    for process in tuple(processes):
        with suppress(psutil.Error):  # it has ended meanwhile
            processes += process.children(recursive=True)
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_END_SECONDS)


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let a Ctrl-C, SIGTERM or SIGHUP wait until the block has ended.

    If a starting Ray is interrupted, it crashes or its processes stay. If an import is interrupted, it may keep
    Python's import lock, so that another thread's next import waits forever, or it may swallow the interrupt.

    At the end the caller's handlers are set again, because Ray replaces that of SIGTERM by an exit. A signal that is
    ignored stays ignored, also by processes that are started meanwhile. These also never hear SIGTERM and SIGHUP, which
    others send to all processes of a run: SLURM sends SIGTERM, and a terminal that is closed SIGHUP. The driver ends
    them in its own time; without them it would wait a minute for an answer.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    came: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()  # only the main thread is interrupted
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if is_main else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    for number in (number for number, handler in handlers.items() if handler != signal.SIG_IGN):
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def in_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the block lasts; variables that are already set stay as they are."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)
