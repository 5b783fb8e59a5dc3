"""What counts of the user's own code: what a definition that an arm names reaches in the user's own files.

A definition is followed name by name, through its file and through the files that it imports from the same folder or
package. Docstrings, comments, annotations and formatting do not count. Nothing is imported or run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__all__ = ["Reached", "files_of", "reached"]

_OURS = frozenset({"topk_losses", "topk_platform", "topk_studies"})
_IN_ENVIRONMENT = frozenset({"torch", "torchvision"})  # a trial's record holds torch's version
_DYNAMIC = frozenset({"eval", "exec", "getattr", "globals", "import_module", "locals", "vars", "__import__"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_WHOLE = "*"

Node = tuple[str, str]
"""A module and a name in it; :data:`_WHOLE` stands for all of the module."""


@dataclass(frozen=True)
class Reached:
    """What a definition rests on.

    Args:
        version: ``version = 3`` of the definition itself, which overrules all else; None if it has none.
        digest: A hash of the user's code that it reaches; empty if it is in no file of the user's.
        packages: The versions of the installed packages that it imports, by name of the distribution.
        losses: Whether it imports ``topk_losses``.
    """

    version: int | None = None
    digest: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    losses: bool = False


def reached(reference: str) -> Reached:
    """Return what ``package.module:attribute`` rests on; of a module that does not exist, nothing.

    Where code looks names up at run time (``getattr``, ``globals``, ``import_module``, ...), or imports ``*``, all of
    the file counts. A top-level statement that is no definition counts with its file, but for ``if __name__ == ...``.
    """
    module, _, name = reference.partition(":")
    seen: dict[Node, str] = {}
    imported: set[str] = set()
    files: dict[str, _File] = {}
    waiting = [(module, name)]
    if (own := _file(module, files)) is not None and (version := own.declared(name)) is not None:
        return Reached(version)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        if (file := _file(node[0], files)) is None:
            imported.add(node[0].partition(".")[0])
            continue
        seen[node] = file.text(node[1])
        waiting += file.uses(node[1])
    text = "\n".join(f"{where}:{what}\n{code}" for (where, what), code in sorted(seen.items()))
    return Reached(
        digest=hashlib.sha256(text.encode()).hexdigest()[:12] if seen else "",
        packages=dict(_versions(imported - _OURS - _IN_ENVIRONMENT)),
        losses="topk_losses" in imported,
    )


def files_of(references: Iterable[str]) -> dict[str, Path]:
    """Return the user's files in which references are defined, and of all that these import, by module name.

    Imports in functions are followed too, and the packages that contain a module are included. Modules of the standard
    library, of installed packages and of this distribution are left out, and so are missing modules.
    """
    files: dict[str, _File] = {}
    waiting = [reference.partition(":")[0] for reference in references]
    while waiting:
        name = waiting.pop()
        if name in files or (file := _file(name, files)) is None:
            continue
        waiting += [module for module, _ in file.imports(file.tree)]
        waiting += [above for above in [name.rpartition(".")[0]] if above]
    return {name: file.path for name, file in sorted(files.items())}


@dataclass(frozen=True)
class _File:
    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        tree = ast.parse(self.path.read_bytes())
        return ast.fix_missing_locations(_Bare().visit(tree))

    @cached_property
    def _defined(self) -> dict[str, list[ast.stmt]]:
        """The statements that define each name; those that define none are under the empty name."""
        result: dict[str, list[ast.stmt]] = {"": []}
        for statement in self.tree.body:
            for name in _names(statement):
                result.setdefault(name, []).append(statement)
        return result

    def declared(self, name: str) -> int | None:
        """Return the number in ``version = 3`` in a class, or in ``name.version = 3`` beside a function."""
        inside = [node.body for node in self._defined.get(name, []) if isinstance(node, ast.ClassDef)]
        for statement in [*self.tree.body, *(inner for body in inside for inner in body)]:
            match statement:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id=owner), attr="version")],
                    value=ast.Constant(value=int(number)),
                ) if owner == name:
                    return number
                case ast.Assign(targets=[ast.Name(id="version")], value=ast.Constant(value=int(number))) if (
                    any(statement in body for body in inside)
                ):
                    return number
        return None

    def text(self, name: str) -> str:
        return "\n".join(map(ast.unparse, self._statements(name)))

    def uses(self, name: str) -> Iterator[Node]:
        """Yield what a definition refers to: names of this file, and of the modules that it imports."""
        yield (self.name, "")
        for statement in self._statements(name):
            yield from self.imports(statement)
            loaded = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            loaded |= {
                node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)
            } & _DYNAMIC
            if loaded & _DYNAMIC:
                yield (self.name, _WHOLE)
            yield from ((self.name, other) for other in sorted(loaded & self._defined.keys()))

    def _statements(self, name: str) -> list[ast.stmt]:
        return self.tree.body if name == _WHOLE else self._defined.get(name, [])

    def imports(self, tree: ast.AST) -> Iterator[Node]:
        """Yield the names that are imported anywhere in a tree; ``import module`` is the whole module."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, _WHOLE) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = self._absolute(node)
                for alias in node.names:
                    inner = f"{module}.{alias.name}"
                    yield (inner, _WHOLE) if _spec(inner) is not None else (module, alias.name)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        above = parts[: len(parts) - node.level + (self.path.name == "__init__.py")]
        return ".".join([*above, *filter(None, [node.module])])


class _Bare(ast.NodeTransformer):
    """Takes docstrings and annotations out of a tree, which change no result."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return super().generic_visit(node)


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines; the empty name for one that is no definition."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            stored = [node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
            return [node.id for node in stored]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).partition(".")[0] for alias in names]
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return []
    return [""]


def _file(name: str, known: dict[str, _File]) -> _File | None:
    """Return the user's file of a module; None for installed and built-in modules, and for those of this package."""
    if name not in known and name.partition(".")[0] not in _OURS:
        spec = _spec(name)
        path = Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
        if path is not None and not _is_installed(path):
            known[name] = _File(name, path)
    return known.get(name)


def _spec(name: str) -> ModuleSpec | None:
    """Return a module's spec; unlike ``importlib.util.find_spec`` this imports no package above it."""
    spec, path, parts = None, None, name.split(".")
    for length in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:length]), path)
        if spec is None or (length < len(parts) and spec.submodule_search_locations is None):
            return None
        path = spec.submodule_search_locations
    return spec


def _is_installed(path: Path) -> bool:
    library = Path(sysconfig.get_path("stdlib"))
    return path.is_relative_to(library) or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def _versions(tops: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the distributions of imported packages with their versions; the standard library has none."""
    outside = sorted(set(tops) - sys.stdlib_module_names)
    known = importlib.metadata.packages_distributions() if outside else {}
    for top in outside:
        for distribution in sorted(set(known.get(top, ()))):
            yield distribution, importlib.metadata.version(distribution)
