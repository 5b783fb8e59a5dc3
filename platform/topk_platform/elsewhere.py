"""Files from other people: they are read within limits, and errors are one line that names the file."""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError, reason
from topk_platform.specs import Study

__all__ = [
    "JSON_LEVELS",
    "check_size",
    "made_by",
    "most_bytes",
    "parse_json",
    "parse_study",
    "unzipped",
]

_VARIABLE = "TOPK_FILE_GIB"
_GIB = 2**30
JSON_LEVELS = 64
"""The number of levels to which JSON may be nested; our own files have ten."""
_MOST_ARMS = 10_000
_MOST_TRIALS = 10_000_000
_OF_JSON = 64  # bytes of memory per character of JSON, at most: an empty object has two characters

# The errors that Python and its libraries raise for files with unexpected content.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, EOFError, RuntimeError)
_MORE_DAMAGE = (MemoryError, OSError, struct.error, zlib.error)


def most_bytes() -> int:
    """Return how many bytes of memory one file may take: ``TOPK_FILE_GIB`` GiB, by default 4.

    Raises:
        UserError: if the variable is not a number above 0.
    """
    given = os.environ.get(_VARIABLE, "4")
    try:
        size = int(float(given) * _GIB)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise UserError(f"{_VARIABLE} must be a number of GiB above 0, got {given!r}")
    return size


def check_size(what: str, size: int, most: int) -> None:
    """Raise ``ValueError`` if something takes too many bytes.

    Example:
        >>> check_size("its table", 2**33, 2**32)
        Traceback (most recent call last):
        ValueError: its table takes 8 GiB, more than 4 GiB: TOPK_FILE_GIB allows more
    """
    if size > most:
        raise ValueError(
            f"{what} takes {size / _GIB:.3g} GiB, more than {most / _GIB:.3g} GiB: {_VARIABLE} allows more"
        )


@contextmanager
def made_by(file: str | Path, kind: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors that a damaged or hostile file causes in the block into one line that names the file.

    The traceback is only shown with ``--debug``, because it does not describe the file.

    Args:
        file: The file.
        kind: What the file must be, such as ``"a file of findings"``.
        errors: Further error types of the libraries that read it.

    Raises:
        UserError: in place of any error that the content of a file can cause.

    Example:
        >>> with made_by("x.json", "a list of numbers"):  # doctest: +ELLIPSIS
        ...     sum(json.loads('["a"]'))
        Traceback (most recent call last):
        topk_platform.errors.UserError: 'x.json' must be a list of numbers: TypeError: unsupported operand ...
    """
    caught: tuple[type[Exception], ...] = (*_DAMAGE, *_MORE_DAMAGE, *errors)
    try:
        yield
    except UserError as error:
        if str(file) in str(error):
            raise
        raise type(error)(f"{str(file)!r} must be {kind}: {error}") from error
    except caught as error:
        raise UserError(f"{str(file)!r} must be {kind}: {_in_words(error)}") from error


def _in_words(error: Exception) -> str:
    name = type(error).__name__
    is_clear = isinstance(error, (OSError, ValueError, LookupError))
    text = reason(error)
    return text if is_clear or text.startswith(name) else f"{name}: {text}"


def parse_json(text: str | bytes) -> Any:
    """Return the value of JSON, within limits of length and depth.

    Raises:
        ValueError: if it is not JSON, or too long or too deep.

    Example:
        >>> parse_json("[" * 100_000)
        Traceback (most recent call last):
        ValueError: JSON must have at most 64 levels
    """
    check_size("JSON", len(text) * _OF_JSON, most_bytes())
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise _too_deep() from error
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > JSON_LEVELS:
            raise _too_deep()
        level = [inner for item in level for inner in _within(item)]
    return value


def _within(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _too_deep() -> ValueError:
    return ValueError(f"JSON must have at most {JSON_LEVELS} levels")


def parse_study(text: str) -> Study:
    """Return the study in JSON, within limits of length, depth, arms and trials.

    Raises:
        ValueError, LookupError, TypeError: if the text holds something else, or exceeds a limit.
    """
    arms = len(parse_json(text)["arms"])
    if arms > _MOST_ARMS:
        raise ValueError(f"its study has {arms} arms, more than {_MOST_ARMS}")
    study = Study.from_json(text)
    if study.size > _MOST_TRIALS:
        raise ValueError(f"its study asks for {study.size} trials, more than {_MOST_TRIALS}")
    return study


def unzipped(file: str | Path) -> bytes:
    """Return the content of a gzipped file of JSON, of which no more is unpacked than JSON may have.

    Raises:
        OSError, EOFError, zlib.error: if the file cannot be read, or is not gzipped.
        ValueError: if its content is longer.
    """
    most = most_bytes() // _OF_JSON
    with gzip.open(file) as content:
        unpacked = content.read(most + 1)
    check_size("its JSON", len(unpacked) * _OF_JSON, most * _OF_JSON)
    return unpacked
