"""Errors that a user can cause and mend; each message names the argument, the rule and what came."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "ChangedError",
    "ClusterError",
    "MissingDataError",
    "StoreError",
    "UserError",
    "blamed",
    "place_of",
    "unknown_name",
]

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


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for a name that no table holds, with near misses first.

    Args:
        kind: What the name is of, such as ``"loss"``.
        name: The name that came.
        known: The names that would have been right.

    Returns:
        The error, to be raised by the caller.

    Example:
        >>> print(unknown_name("loss", "smooth_topk", ["smooth_topk_svm", "ldam"]))
        unknown loss 'smooth_topk': did you mean 'smooth_topk_svm'? (known: ldam, smooth_topk_svm)
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return UserError(f"unknown {kind} {name!r}: {hint}(known: {', '.join(names)})")


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


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Turn whatever code of the user's raises within the block into one line that says what, why and where.

    Args:
        what: The code's name, to be followed by "raised".

    Raises:
        UserError: in place of any other exception but an interrupt, and of an exit.

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
