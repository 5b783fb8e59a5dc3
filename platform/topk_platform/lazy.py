"""Packages whose names are imported on first use, so that a command pays only for the libraries that it needs."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["first_use"]


def first_use(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports each of its public names on first use.

    The names and their modules are those that the package imports under ``if TYPE_CHECKING:``, which type checkers
    and editors read too. So each name is written once::

        if TYPE_CHECKING:
            from topk_platform.serving.loading import load_model

        __getattr__ = first_use(__name__)

    Args:
        package: The package's full name.

    Raises:
        AttributeError: from the returned function, for a name that the package does not import.

    Example:
        >>> first_use("topk_platform")("Ledger")
        Traceback (most recent call last):
        AttributeError: module 'topk_platform' has no attribute 'Ledger'
    """
    modules: dict[str, str] = {}

    def load(name: str) -> Any:
        if not modules:
            modules.update(_imports_for_type_checkers(package))
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return load


def _imports_for_type_checkers(package: str) -> Iterator[tuple[str, str]]:
    """Yield each name that a package imports under ``if TYPE_CHECKING:``, with its module."""
    spec = sys.modules[package].__spec__
    source = spec.loader.get_source(package) if spec else ""  # type: ignore[union-attr]
    for statement in ast.parse(source or "").body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for line in statement.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    yield from ((alias.name, line.module) for alias in line.names)
