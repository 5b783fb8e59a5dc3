"""The code that files from other people may name: this package's, and modules that the user trusts."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError, reason
from topk_platform.references import is_reference
from topk_platform.specs import STANDINS, Arm, Study
from topk_platform.specs.smoke import standin_reference
from topk_platform.user_code import files_of
from topk_platform.versions import named_by, references

__all__ = [
    "JSON_LEVELS",
    "Trust",
    "check_size",
    "made_by",
    "most_bytes",
    "parse_json",
    "parse_study",
    "unzipped",
]

_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_VARIABLE = "TOPK_TRUST"
_SHIPPED = frozenset(map(standin_reference, STANDINS))  # smoke runs refer to our own code by reference


@dataclass(frozen=True)
class Trust:
    """The code that a file from other people may name.

    Exported networks and rows of a ledger name datasets, networks and losses. A name in our tables is always
    allowed. A reference, ``package.module:attribute``, could import any module and call anything in it. It is refused
    unless its module or a package around it is trusted.

    Args:
        modules: The modules that are trusted, with all their submodules.
        exactly: Single references that are trusted.

    Example:
        >>> trust = Trust.of(["my_lab"])
        >>> trust.check("net", {"model": "mlp", "loss": "my_lab.losses:mine"})
        >>> trust.check("net", {"model": "os:system"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        topk_platform.errors.UserError: net: its model is 'os:system', which is no code of this package; ...
    """

    modules: tuple[str, ...] = ()
    exactly: frozenset[str] = frozenset()

    @classmethod
    def of(cls, modules: Iterable[str]) -> Trust:
        """Return the trust in modules, given by name.

        Raises:
            UserError: if one of the names cannot be that of a module.
        """
        names = (modules,) if isinstance(modules, str) else tuple(modules)
        for name in names:
            if not isinstance(name, str) or not _MODULE.fullmatch(name):
                raise UserError(f"trust must name modules such as my_lab or my_lab.losses, got {name!r}")
        return cls(names)

    @classmethod
    def of_environment(cls) -> Trust:
        """Return the trust in the modules that the environment variable ``TOPK_TRUST`` lists, separated by commas.

        The variable is for programs that load our networks and do not know our options, such as MLflow.
        """
        return cls.of(filter(None, os.environ.get(_VARIABLE, "").split(",")))

    @classmethod
    def of_study(cls, study: Study) -> Trust:
        """Return the trust in the code that a study's definition names: the user's code, or ours."""
        return cls(exactly=frozenset(name for arm in study.arms for name in references(arm)))

    def with_own_modules(self, arm: Arm) -> Trust:
        """Return this trust with the modules of an arm that are the user's own files.

        Such files are neither in the standard library nor in an installed package, see
        :func:`~topk_platform.user_code.files_of`. Nothing is imported to find them. Modules that do not exist are
        included as well, because importing them gives a better error than a refusal.
        """
        names = references(arm)
        modules = {name.partition(":")[0] for name in names}
        nowhere = (name for name in modules if not _is_somewhere(name.partition(".")[0]))
        return replace(self, modules=(*self.modules, *files_of(names), *nowhere))

    def check(self, file: object, names: Mapping[str, str]) -> None:
        """Raise ``UserError`` if a name is a reference that is not trusted; nothing is imported.

        Args:
            file: The file that contains the names, for the message.
            names: The names, by kind, such as ``"model"``.
        """
        for kind, name in names.items():
            if is_reference(name) and not self._holds(name):
                raise UserError(
                    f"{file}: its {kind} is {name!r}, which is no code of this package; nothing of it was run. If you "
                    "trust that module and the author of the file, name the module with --trust MODULE (Python: "
                    f"trust=('MODULE',); MLflow: {_VARIABLE}=MODULE)"
                )

    def check_arm(self, file: object, arm: Arm) -> None:
        """Raise ``UserError`` if the data, the network, the loss or the sampler of an arm is not trusted."""
        for kind, name in named_by(arm):
            self.check(file, {kind: name})

    def _holds(self, name: str) -> bool:
        module = name.partition(":")[0]
        return name in self.exactly | _SHIPPED or any(
            f"{module}.".startswith(f"{known}.") for known in self.modules
        )


def _is_somewhere(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # "", or the program itself
        return False


_LIMIT = "TOPK_FILE_GIB"
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
    given = os.environ.get(_LIMIT, "4")
    try:
        size = int(float(given) * _GIB)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise UserError(f"{_LIMIT} must be a number of GiB above 0, got {given!r}")
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
            f"{what} takes {size / _GIB:.3g} GiB, more than {most / _GIB:.3g} GiB: {_LIMIT} allows more"
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
