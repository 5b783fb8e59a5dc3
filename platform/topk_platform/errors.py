"""Errors that a user can cause and mend; each message names the argument, the rule and what came."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["ChangedError", "ClusterError", "MissingDataError", "StoreError", "UserError", "unknown_name"]


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
