"""Errors that a user can fix, with the argument, the rule and the value in their messages; and faults of machines."""

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
    "RefusingStoreError",
    "SharedMemoryError",
    "SmallShareError",
    "StalledError",
    "StoreError",
    "TimeLimitError",
    "UnreachableStoreError",
    "UserError",
    "as_user_error",
    "is_of_users_code",
    "location_of",
    "masked",
    "reason",
    "unknown_name",
]

_LONGEST = 500  # the most characters of one line
# The part of an address between scheme or user name and host, and the values of options with names such as "token".
_SECRET = re.compile(
    r"(?P<before>\b[a-z][\w+.-]*://[^\s/:@?#]*:)(?!\d{1,5}(?:[/?#\s]|$))\S+(?=@)"  # a password may hold any letter
    r"|(?P<token>\b[a-z][\w+.-]*://)[^\s/@?#]+(?=@)"
    r"|(?P<option>[?&;][\w.-]*(?:passw|pwd|token|secret|key|credential|signature|sig)[\w.-]*=)[^\s&;#'\"]+",
    re.IGNORECASE,
)
_OURS = re.compile(r"[/\\]topk_(losses|platform|studies)[/\\]")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class UserError(ValueError):
    """Something that the user wrote cannot be done; nothing was started or written."""


class MissingDataError(UserError):
    """A dataset is not on disk. The message says where to get it and where to put it."""


class ChangedError(UserError):
    """The code or the data differ from those with which a trial was planned, so it cannot run here."""


class StoreError(UserError):
    """The store cannot be used: it is not writable, in use, damaged, or holds other records."""


class ClusterError(UserError):
    """A Ray cluster cannot be reached or used."""


class FaultError(Exception):
    """A fault of a machine, a process or the store kept a trial from its result.

    A fault is never written as a result. The trial is tried again from its last checkpoint, and stays open if that does
    not help.

    Attributes:
        kind: The fault's name in messages.
        remedy: What the user can do about it.
        passing: Whether it may disappear by itself, so that trying again at once makes sense.
    """

    kind: ClassVar[str] = "fault"
    remedy: ClassVar[str] = "run the same command again"
    passing: ClassVar[bool] = True


class LostProcessError(FaultError):
    """A trial's process ended without a message: it was killed or preempted, or its machine was lost."""

    kind = "process lost"
    remedy = "see what ends processes there: memory, preemption, or a crash in native code"


class UnreachableStoreError(FaultError):
    """A trial cannot read or write its files in the store."""

    kind = "store"
    remedy = "see that every worker can read and write the store"


class RefusingStoreError(FaultError):
    """The store has refused to take a trial's files for minutes."""

    kind = "refusing store"
    remedy = "make room in the store, or give every worker the right to write there"
    passing = False  # several tries have failed already


class SharedMemoryError(FaultError):
    """A GPU ran out of memory while other processes held a part of it."""

    kind = "shared memory"
    remedy = "free the GPU of other processes, or give a trial more of it (gpus of the study, --workers)"


class SmallShareError(FaultError):
    """A trial needs more of a GPU's memory than its share."""

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


class TimeLimitError(FaultError):
    """A trial has trained for longer than its study allows."""

    kind = "time limit"
    remedy = "a larger time_limit in the study: it goes on from its last checkpoint"
    passing = False


FAULTS = {fault.__name__: fault for fault in FaultError.__subclasses__()}
"""The kinds of faults, by the names under which workers send them."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name; similar names come first.

    Args:
        kind: The kind of object that the name stands for, such as ``"loss"``.
        name: The unknown name.
        known: The valid names.

    Returns:
        The error, to be raised by the caller.

    Example:
        >>> print(unknown_name("loss", "smooth_topk", ["smooth_topk_svm", "ldam"]))
        unknown loss 'smooth_topk': did you mean 'smooth_topk_svm'? (known: ldam, smooth_topk_svm)
    """
    names = sorted(known)
    in_lower = {known_name.lower(): known_name for known_name in reversed(names)}
    near = [in_lower[match] for match in difflib.get_close_matches(name.lower(), in_lower, n=3, cutoff=0.5)]
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
    return _SECRET.sub(lambda match: f"{match['before'] or match['token'] or match['option']}***", text)


def reason(error: BaseException) -> str:
    r"""Return the reason of a failure in one line: the first line of the error, or of the system's error behind it.

    Libraries put hints and the origin of an error into further lines. A lost connection or another error of the system
    often causes two or three errors of a library.

    Example:
        >>> reason(RuntimeError("CUDA error: unknown\nFor debugging consider ..."))
        'CUDA error: unknown'
        >>> reason(KeyError("seed")), reason(MemoryError())
        ("KeyError: 'seed'", 'MemoryError')
    """
    if not isinstance(error, UserError):
        error = _system_error(error) or error
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()] or [""]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    name = type(error).__name__ if not text or isinstance(error, LookupError) else ""
    return masked(": ".join(filter(None, (name, text))))[:_LONGEST]


def _system_error(error: BaseException) -> BaseException | None:
    """Return the innermost error of the system among an error's causes."""
    match: BaseException | None = None
    cause: BaseException | None = error
    while cause is not None:
        match = cause if isinstance(cause, OSError) else match
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return match


def location_of(error: BaseException) -> str:
    """Return the location where an exception arose: the innermost line outside installed libraries, if there is one."""
    if isinstance(error, SyntaxError) and error.filename:  # the error is in a file that was read
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*_LIBRARIES, __file__, "<frozen"))]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


def is_of_users_code(error: BaseException) -> bool:
    """Return whether an exception arose in a user's code, or in a library that this code called.

    A user's code is neither in an installed package nor in one of our ``topk_`` packages.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _OURS.search(frame.filename):
            return False
        if not frame.filename.startswith((*_LIBRARIES, "<")):
            return True
    return False


@contextmanager
def as_user_error(what: str) -> Iterator[None]:
    """Turn any exception of the user's code in the block into one line: what failed, why and where.

    Args:
        what: The name of the code; the message continues with "raised".

    Raises:
        UserError: instead of every exception except an interrupt, also for a call of ``sys.exit``.

    Example:
        >>> with as_user_error("model mine"):  # doctest: +ELLIPSIS
        ...     raise SystemExit(3)
        Traceback (most recent call last):
        topk_platform.errors.UserError: model mine raised SystemExit: 3 (...:2 in <module>)
    """
    try:
        yield
    except UserError:  # its message is complete
        raise
    except (Exception, SystemExit) as error:
        why = " ".join(str(error).split())
        raise UserError(f"{what} raised {type(error).__name__}: {why} ({location_of(error)})") from error
