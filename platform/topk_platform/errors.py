"""Errors that a user can cause and fix, each naming the argument, the rule and the value; and faults of machines."""

from __future__ import annotations

import difflib
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

__all__ = [
    "FAULTS",
    "BrokenDeviceError",
    "ChangedError",
    "ClusterError",
    "FaultError",
    "LostProcessError",
    "MissingDataError",
    "NotStartedError",
    "RefusingStoreError",
    "SharedMemoryError",
    "SmallShareError",
    "StalledError",
    "StoreError",
    "TimeLimitError",
    "UnreachableStoreError",
    "UserError",
    "blamed",
    "is_of_users_code",
    "masked",
    "place_of",
    "reason",
    "unknown_name",
]

_LONGEST = 500  # letters of one line
# What stands between a scheme, or a user's name, and the host of an address, and what options of such a name hold.
_SECRET = re.compile(
    r"(?P<before>\b[a-z][\w+.-]*://[^\s/:@?#]*:)(?!\d{1,5}(?:[/?#\s]|$))\S+(?=@)"  # which may hold any letter
    r"|(?P<token>\b[a-z][\w+.-]*://)[^\s/@?#]+(?=@)"
    r"|(?P<option>[?&;][\w.-]*(?:passw|pwd|token|secret|key|credential|signature|sig)[\w.-]*=)[^\s&;#'\"]+",
    re.IGNORECASE,
)
_OURS = re.compile(r"[/\\]topk_(losses|platform|studies)[/\\]")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class UserError(ValueError):
    """Something the user wrote cannot be done as it stands; nothing was started or written."""


class MissingDataError(UserError):
    """A dataset is not on disk; the message says where to get it and where to put it."""


class ChangedError(UserError):
    """The code or the data at hand are not those that a trial was planned with, so that it cannot run here."""


class StoreError(UserError):
    """The results' place cannot be used: not writable, in use, or holding somebody else's records."""


class ClusterError(UserError):
    """No Ray cluster answers at the address that was given."""


class FaultError(Exception):
    """A fault of a machine, a process or the store kept a trial from its result.

    A fault is never written as a result: the trial is tried again from its last checkpoint, and stays open if that
    does not help.

    Attributes:
        kind: The fault's name in messages.
        remedy: What the user can do about it.
        passing: Whether it may pass by itself, so that trying again at once makes sense.
    """

    kind: ClassVar[str] = "fault"
    remedy: ClassVar[str] = "run the same command again"
    passing: ClassVar[bool] = True


class LostProcessError(FaultError):
    """A trial's process ended without a word: killed, preempted, or gone with its machine."""

    kind = "process lost"
    remedy = "see what ends processes there: memory, preemption, or a crash in native code"


class UnreachableStoreError(FaultError):
    """What a trial needs of the store cannot be read or written."""

    kind = "store"
    remedy = "see that every worker can read and write the store"


class RefusingStoreError(FaultError):
    """The store has refused for minutes what belongs to a trial's result."""

    kind = "refusing store"
    remedy = "make room in the store, or give every worker the right to write there"
    passing = False  # it was waited for


class SharedMemoryError(FaultError):
    """A GPU ran out of memory while other processes held a part of it."""

    kind = "shared memory"
    remedy = "free the GPU of other processes, or give a trial more of it (gpus of the study, --workers)"


class SmallShareError(FaultError):
    """A trial wants more of a GPU's memory than its share of it."""

    kind = "share of a GPU"
    remedy = "a larger gpus in the study: it goes on from its last checkpoint"
    passing = False


class BrokenDeviceError(FaultError):
    """A GPU does not work."""

    kind = "broken GPU"
    remedy = "look after the GPU of that machine"


class StalledError(FaultError):
    """A trial made no progress, or an epoch took many times as long as the earlier ones."""

    kind = "stalled"
    remedy = "see what it waits for: data, the store, the machine, or its own code"


class NotStartedError(FaultError):
    """Ray did not start a trial's process, although the cluster had room for it."""

    kind = "not started"
    remedy = "see on the nodes what keeps Ray from starting processes, or give the study a larger start_limit"


class TimeLimitError(FaultError):
    """A trial has trained for longer than its study allows."""

    kind = "time limit"
    remedy = "a larger time_limit in the study: it goes on from its last checkpoint"
    passing = False


FAULTS: dict[str, type[FaultError]] = {
    fault.__name__: fault
    for fault in (
        *(LostProcessError, UnreachableStoreError, SharedMemoryError, SmallShareError, BrokenDeviceError),
        *(StalledError, TimeLimitError, RefusingStoreError, NotStartedError),
    )
}
"""The kinds of faults by the names that workers send them under."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name; similar names come first.

    Args:
        kind: What kind of thing the name stands for, such as ``"loss"``.
        name: The unknown name.
        known: The valid names.

    Returns:
        The error, to be raised by the caller.

    Example:
        >>> print(unknown_name("loss", "smooth_topk", ["smooth_topk_svm", "ldam"]))
        unknown loss 'smooth_topk': did you mean 'smooth_topk_svm'? (known: ldam, smooth_topk_svm)
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
    return UserError(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")


def masked(text: str) -> str:
    """Return a text with the passwords in its URIs masked, so that the text can be shown, sent and stored.

    Example:
        >>> masked("cannot reach postgresql://topk:s3cr3t@db/mlflow?sslpassword=s3cr3t now")
        'cannot reach postgresql://topk:***@db/mlflow?sslpassword=*** now'
        >>> masked("https://t0ken@host/"), masked("s3://bucket/runs?region=eu")
        ('https://***@host/', 's3://bucket/runs?region=eu')
        >>> masked("s3://key:a/b?c@d@bucket"), masked("http://host:80/a@b")
        ('s3://key:***@bucket', 'http://host:80/a@b')
    """
    return _SECRET.sub(lambda found: f"{found['before'] or found['token'] or found['option']}***", text)


def reason(error: BaseException) -> str:
    r"""Return in one line why something failed: the first line of what the error says, or the system behind it.

    Libraries put their account of where an error arose, and hints, into further lines; a lost connection or a file that
    cannot be opened is often behind two or three errors of theirs.

    Example:
        >>> reason(RuntimeError("CUDA error: unknown\nFor debugging consider ..."))
        'CUDA error: unknown'
        >>> reason(KeyError("seed")), reason(MemoryError())
        ("KeyError: 'seed'", 'MemoryError')
    """
    if not isinstance(error, UserError):
        error = _of_the_system(error) or error
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()] or [""]
    said = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    name = type(error).__name__ if not said or isinstance(error, LookupError) else ""
    return masked(": ".join(filter(None, (name, said))))[:_LONGEST]


def _of_the_system(error: BaseException) -> BaseException | None:
    """Return the innermost error of the system among the causes of one."""
    found: BaseException | None = None
    cause: BaseException | None = error
    while cause is not None:
        found = cause if isinstance(cause, OSError) else found
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return found


def place_of(error: BaseException) -> str:
    """Return where an exception came from: the innermost line that is not in an installed library, if there is one."""
    if (
        isinstance(error, SyntaxError) and error.filename
    ):  # in a file that was read, not in a line that was run
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*_LIBRARIES, __file__, "<frozen"))]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


def is_of_users_code(error: BaseException) -> bool:
    """Return whether an exception arose in code of a user's, or in a library that this code called.

    Code of a user's is neither in an installed package nor in a ``topk_`` package of ours, wherever that lies.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _OURS.search(frame.filename):
            return False
        if not frame.filename.startswith((*_LIBRARIES, "<")):
            return True
    return False


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Turn any exception of the user's code in the block into one line that says what failed, why and where.

    Args:
        what: The code's name, to be followed by "raised".

    Raises:
        UserError: in place of every other exception except an interrupt; a call of ``sys.exit`` too.

    Example:
        >>> with blamed("model mine"):  # doctest: +ELLIPSIS
        ...     raise SystemExit(3)
        Traceback (most recent call last):
        topk_platform.errors.UserError: model mine raised SystemExit: 3 (...:2 in <module>)
    """
    try:
        yield
    except UserError:  # which says it all
        raise
    except (Exception, SystemExit) as error:
        why = " ".join(str(error).split())
        raise UserError(f"{what} raised {type(error).__name__}: {why} ({place_of(error)})") from error
