"""Checks and words that specs have in common."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from topk_platform.errors import UserError

__all__ = ["absolute", "check", "check_name", "check_not_blank", "first_few", "plural", "rounded"]

_WHOLE = 999.5  # from here on, three digits would be written as a power of ten
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def check(rule: bool, message: str) -> None:
    """Raise ``UserError`` with ``message`` unless ``rule`` holds."""
    if not rule:
        raise UserError(message)


def check_not_blank(argument: str, value: object) -> None:
    """Raise ``UserError`` if a path or URI is blank, such as that of an unset shell variable.

    Example:
        >>> check_not_blank("store", "")
        Traceback (most recent call last):
        topk_platform.errors.UserError: store must not be blank, got '': is a variable unset?
    """
    check(bool(str(value).strip()), f"{argument} must not be blank, got {value!r}: is a variable unset?")


def check_name(kind: str, name: str) -> None:
    """Raise ``UserError`` unless ``name`` is safe in a path, a glob and a table."""
    check(
        bool(_NAME.fullmatch(name)),
        f"{kind} must match {_NAME.pattern}, because it names files and folders, got {name!r}",
    )


def first_few(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are, for a message.

    Example:
        >>> first_few(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    Example:
        >>> plural(1, "trial"), plural(1200, "trial")
        ('1 trial', '1,200 trials')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rounded(value: object) -> str:
    """Return a value as text. A float is rounded to three digits, or to a whole number if that has more digits.

    Example:
        >>> rounded(0.04520469449210724), rounded(1240.5), rounded(12), rounded("adam")
        ('0.0452', '1240', '12', 'adam')
    """
    if not isinstance(value, float):
        return f"{value}"
    return f"{value:.3g}" if abs(value) < _WHOLE else f"{value:.0f}"


def absolute(path: str | Path) -> Path:
    """Return a path from the root of the file system, without ``..`` and ``~``.

    Links are followed only where the path has ``..``, which means the folder above a link's target.

    Raises:
        UserError: if the path is relative and the working folder has been deleted.

    Example:
        >>> absolute("/mnt/runs/../data")
        PosixPath('/mnt/data')
    """
    given = Path(os.path.expanduser(path))
    try:
        return Path(os.path.realpath(given)) if ".." in given.parts else given.absolute()
    except FileNotFoundError as error:
        raise UserError("the working folder has been deleted: change to another one") from error
