"""A hash of the sources that determine a result, so that no table mixes the results of two programs."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import pkgutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from topk_platform.references import is_reference
from topk_platform.specs import Arm, OptunaSampler, Study

__all__ = [
    "code_files",
    "code_version",
    "code_versions",
    "loaded_version",
    "platform_version",
    "references",
    "user_modules",
]

_OURS = frozenset({"topk_losses", "topk_platform", "topk_studies"})
_PLATFORM_PARTS = ("data", "models", "training", "calibration.py", "metrics.py", "streams.py")


def code_version(arm: Arm) -> str:
    """Return the hash of the losses, of the platform's data, models and training, and of the user's modules.

    Every byte counts, comments included. All files of the losses and of the platform's data, models and training
    count for every arm, whichever loss it has. Of the user's modules, those that the arm refers to and what they
    import count, see :func:`user_modules`: another loss in its own file does not repeat other arms' trials. Of an
    installed package that the arm refers to, all files count. Studies, tables, searches and this module do not count,
    because they change no trial's result; a sampler that an arm refers to does, because it chooses what is tried.
    """
    return _version(_referenced(arm))


def code_versions(study: Study) -> dict[str, str]:
    """Return each arm's code version, by arm identity."""
    return {study.arm_id(arm): code_version(arm) for arm in study.arms}


def code_files(arm: Arm) -> dict[str, str]:
    """Return a hash of each file behind an arm's code version, leaving out files of installed packages.

    They tell which file changed when the version has changed. The losses' and the platform's are named by their
    paths, such as ``topk_losses/margins.py``, the user's by their modules.
    """
    theirs = {name: _file_hash(path) for name, path in user_modules(arm).items()}
    return {**_own_files(), **theirs}


@cache
def _own_files() -> dict[str, str]:
    here = Path(__file__).parent
    files = {path: path.relative_to(root.parent) for root in _own_roots() for path in _files(root)}
    inside = {
        path: here.name / place if path.is_relative_to(here) else place for path, place in files.items()
    }
    return {place.as_posix(): _file_hash(path) for path, place in inside.items()}


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def platform_version() -> str:
    """Return the code version of an arm that refers to no module of a user's: losses, data, models and training."""
    return _version(())


def loaded_version(arm: Arm) -> str:
    """Return the code version that this process runs, computed once, right after its modules were imported.

    A process keeps what it has imported, so files that change later have no effect on it. A module that cannot be
    imported counts by its file; the error is raised where the module is used.
    """
    return _loaded_version(_referenced(arm))


@cache
def _loaded_version(names: tuple[str, ...]) -> str:
    for name in names:
        with suppress(Exception):  # raised again where the module is used
            importlib.import_module(name)
    return _version(names)  # after the imports: a file that changes between the two is seen, not missed


def user_modules(arm: Arm) -> dict[str, Path]:
    """Return the files of the modules that an arm refers to and of all that these import, by module name.

    Imports are followed as they are written, in functions as well and with the packages that modules lie in, to
    whatever is neither the standard library's, nor installed in ``site-packages``, nor of ``topk_losses``,
    ``topk_platform`` and ``topk_studies``. Nothing is imported for it, a module that is not there is left out, and
    one that is imported by a computed name is not seen.
    """
    return _followed(_referenced(arm))


def references(arm: Arm) -> tuple[str, ...]:
    """Return what an arm names as ``package.module:attribute``: of data, model and loss, and the sampler's."""
    names = [arm.regime.dataset, arm.model.name, arm.loss.name]
    if arm.is_searched and isinstance(arm.protocol.sampler, OptunaSampler):
        names.append(arm.protocol.sampler.reference)
    return tuple(filter(is_reference, names))


def _referenced(arm: Arm) -> tuple[str, ...]:
    return tuple(sorted({name.partition(":")[0] for name in references(arm)}))


def _version(names: tuple[str, ...]) -> str:
    state = hashlib.sha256(_own_sources().encode())
    for name, path in sorted(_followed(names).items()):  # by name: the same in whichever folder they lie
        source = path.read_bytes()
        state.update(f"{name}\0{len(source)}\0".encode())
        state.update(source)
    for top in sorted({_top(name) for name in names} - _OURS):
        state.update(_installed_sources(top).encode())
    return state.hexdigest()[:12]


@cache
def _own_sources() -> str:
    return _hashed(_own_roots())


def _own_roots() -> list[Path]:
    here = Path(__file__).parent
    losses = Path(str(importlib.util.find_spec("topk_losses").origin)).parent  # type: ignore[union-attr]
    return [losses, *(here / part for part in _PLATFORM_PARTS)]


@cache
def _installed_sources(top: str) -> str:
    spec = _spec(top)
    place = None if spec is None else next(iter(spec.submodule_search_locations or ()), spec.origin)
    return _hashed([Path(place)]) if place is not None and _installed(Path(place)) else ""


def _hashed(roots: Iterable[Path]) -> str:
    state = hashlib.sha256()
    for root in roots:
        for path in _files(root):
            state.update(path.relative_to(root.parent).as_posix().encode())
            state.update(path.read_bytes())
    return state.hexdigest()


def _files(root: Path) -> list[Path]:
    """Return the sources of a package, or of a part of one, in their order; what is for tests does not count."""
    found = sorted([root] if root.is_file() else root.rglob("*.py"))
    return [path for path in found if "testing" not in path.relative_to(root.parent).parts]


def _followed(names: Iterable[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen or _top(name) in _OURS | {""}:
            continue
        seen.add(name)
        path = _source(name)
        if path is not None and not _installed(path):
            found[name] = path
            waiting += _imports_of(name, path)
        waiting += [name.rpartition(".")[0]]  # to import a module is to run its packages
    return found


def _top(name: str) -> str:
    return name.partition(".")[0]


def _installed(path: Path) -> bool:
    library = Path(os.__file__).parent
    return path.is_relative_to(library) or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def _source(name: str) -> Path | None:
    spec = _spec(name)
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path is not None and path.is_file() else None  # built-in modules have no file


def _spec(name: str) -> ModuleSpec | None:
    """Return where a module is, importing nothing: ``importlib.util.find_spec`` would run its packages."""
    parent = name.rpartition(".")[0]
    if not parent:
        with suppress(ImportError, ValueError):
            return importlib.util.find_spec(name)
        return None
    above = _spec(parent)
    places = (above.submodule_search_locations if above is not None else None) or ()
    finders = filter(None, map(pkgutil.get_importer, places))
    specs = [spec for finder in finders if (spec := finder.find_spec(name)) is not None]
    return next((spec for spec in specs if spec.loader is not None), specs[0] if specs else None)


def _imports_of(name: str, path: Path) -> Iterator[str]:
    if path.suffix != ".py":
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for base, level in _statements(path.read_bytes()):
        yield _absolute(base, level, package)


@lru_cache(maxsize=1024)
def _statements(source: bytes) -> tuple[tuple[str, int], ...]:
    """Return every name that a source may import, and how many packages above its own it is relative to."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # half written, as a rule; whoever imports it is told
        return ()
    found: set[tuple[str, int]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, 0) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):  # what is imported from a package may be a module
            base = node.module or ""
            found |= {(f"{base}.{alias.name}".lstrip("."), node.level) for alias in node.names}
            found |= {(base, node.level)}
    return tuple(sorted(found))


def _absolute(name: str, level: int, package: str) -> str:
    if not level:
        return name
    parents = package.split(".")
    above = parents[: max(0, len(parents) - level + 1)]
    return ".".join(part for part in (*above, name) if part)
