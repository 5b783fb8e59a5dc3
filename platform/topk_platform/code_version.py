"""A hash of the sources that determine a result, so that no table mixes the results of two programs."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from topk_platform.references import is_reference
from topk_platform.specs import Arm

__all__ = ["code_version"]

_PLATFORM_PARTS = ("data", "models", "training", "metrics.py", "streams.py")


def code_version(arm: Arm) -> str:
    """Return the hash of the losses, of the platform's data, models and training, and of the user's modules.

    Of a user's module that the arm refers to, the module itself counts and what it imports from its own
    top-level package, so that one more loss repeats no other arm's trials. Tables, searches and this module do
    not count, for they change no trial's result.
    """
    state = hashlib.sha256(_own_sources().encode())
    names = (arm.regime.dataset, arm.model.name, arm.loss.name)
    for path in sorted(
        _user_sources({name.partition(":")[0] for name in names if is_reference(name)}), key=str
    ):
        state.update(path.read_bytes())
    return state.hexdigest()[:12]


@cache
def _own_sources() -> str:
    here = Path(__file__).parent
    losses = Path(str(importlib.util.find_spec("topk_losses").origin)).parent  # type: ignore[union-attr]
    roots = [losses, *(here / part for part in _PLATFORM_PARTS)]
    state = hashlib.sha256()
    for root in roots:
        for path in sorted([root] if root.is_file() else root.rglob("*.py")):
            if "testing" not in path.parts:
                state.update(path.relative_to(root.parent).as_posix().encode())
                state.update(path.read_bytes())
    return state.hexdigest()


def _user_sources(modules: Iterable[str]) -> set[Path]:
    seen: dict[str, Path] = {}
    waiting = [name for name in modules if not name.startswith("topk_")]
    while waiting:
        name = waiting.pop()
        path = _source(name)
        if name not in seen and path is not None:
            seen[name] = path
            waiting += _imported_siblings(name, path)
    return set(seen.values())


def _source(name: str) -> Path | None:
    found = sys.modules.get(name)
    origin = getattr(found, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):  # a name imported from a package need not be a module
            return None
        origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _imported_siblings(name: str, path: Path) -> Iterator[str]:
    top = name.partition(".")[0]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        for imported in _imports(node, package):
            if imported.partition(".")[0] == top:
                yield imported


def _imports(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*parents, base] if base else parents)
    return [base, *(f"{base}.{alias.name}" for alias in node.names)]
