"""Finding the source of a module without importing anything."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path

__all__ = ["Source", "find_source", "find_spec", "is_installed", "is_ours", "top_of"]

_OURS = frozenset({"topk_losses", "topk_platform", "topk_studies"})


@dataclass(frozen=True)
class Source:
    """A module's file.

    Args:
        name: The module's name.
        path: The file.
    """

    name: str
    path: Path

    @property
    def is_package(self) -> bool:
        """Whether it is a package's ``__init__.py``."""
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        """The package that its relative imports are relative to."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def top_of(name: str) -> str:
    """Return the first part of a module's name."""
    return name.partition(".")[0]


def is_ours(name: str) -> bool:
    """Return whether a module belongs to this distribution."""
    return top_of(name) in _OURS


def is_followed(top: str) -> bool:
    """Return whether a top-level name is one of our packages or a user's module that exists and is not installed."""
    if is_ours(top):
        return True
    spec = _top_spec(top)
    origin = [spec.origin] if spec is not None and spec.has_location else []  # built-in modules have no file
    folders = [] if spec is None else [*(spec.submodule_search_locations or ()), *filter(None, origin)]
    return bool(folders) and not is_installed(Path(folders[0]))


def find_source(name: str) -> Source | None:
    """Return the source of a module; None if the module has no file."""
    path = _file(name)
    return None if path is None else Source(name, path)


def is_namespace(name: str) -> bool:
    """Return whether a name is a package without an ``__init__.py``."""
    spec = find_spec(name)
    return spec is not None and spec.loader is None and bool(spec.submodule_search_locations)


def _file(name: str) -> Path | None:
    spec = find_spec(name)
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path is not None and path.is_file() else None  # built-in modules have no file


def is_installed(path: Path) -> bool:
    """Return whether a file is in the standard library or in ``site-packages``."""
    library = Path(os.__file__).parent
    return path.is_relative_to(library) or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def find_spec(name: str) -> ModuleSpec | None:
    """Return a module's spec without importing anything; ``importlib.util.find_spec`` would import its packages."""
    parent = name.rpartition(".")[0]
    if not parent:
        return _ours(name) if is_ours(name) else _top_spec(name)
    above = find_spec(parent)
    folders = (above.submodule_search_locations if above is not None else None) or ()
    finders = filter(None, map(pkgutil.get_importer, folders))
    specs = [spec for finder in finders if (spec := finder.find_spec(name)) is not None]
    return next((spec for spec in specs if spec.loader is not None), specs[0] if specs else None)


@cache
def _ours(name: str) -> ModuleSpec | None:
    return _top_spec(name)


def _top_spec(name: str) -> ModuleSpec | None:
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(name)
    return None
