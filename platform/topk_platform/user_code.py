"""What counts of the user's own code: what a definition that an arm names reaches in the user's own files.

A definition is followed name by name through its file, and through the user's files that this file imports. Docstrings,
comments, annotations and formatting do not count. Nothing is imported or run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import pkgutil
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path

__all__ = ["OURS", "Reached", "files_of", "reached"]

OURS = frozenset({"topk_losses", "topk_platform", "topk_studies"})
"""The packages of this distribution."""

_DYNAMIC = {
    *("eval", "exec", "getattr", "globals", "import_module", "locals", "modules", "vars"),
    *("__dict__", "__import__", "__subclasses__"),
}
"""What looks names up while a program runs."""
_ALL = "*"
_ALWAYS = ""

Node = tuple[str, str]
"""A module and a name in it; or :data:`_ALL`, or :data:`_ALWAYS` for its statements that are no definitions."""


@dataclass(frozen=True)
class Reached:
    """What a definition rests on.

    Args:
        version: ``version = 3`` of the definition itself, which overrules all else; None if it has none.
        digest: A hash of the user's code that it reaches; empty if it is in no file of the user's.
        packages: The packages outside the user's files that it uses, by the names by which they are imported.
    """

    version: int | None = None
    digest: str = ""
    packages: frozenset[str] = frozenset()


def reached(reference: str) -> Reached:
    """Return what ``package.module:attribute`` rests on; nothing if there is no such module.

    Statements at the top of a file that are no definitions count with the file, and with each file that it imports.
    ``if __name__ == ...`` does not count. Where code looks up names at run time (:data:`_DYNAMIC`) or imports ``*``,
    all of the file counts.

    Args:
        reference: The reference.
    """
    module, _, name = reference.partition(":")
    file_of = cache(_file)
    if (own := file_of(module)) is not None and (version := own.declared(name)) is not None:
        return Reached(version)
    texts: dict[Node, str] = {}
    outside: set[str] = set()
    waiting = [(module, name)]
    while waiting:
        node = where, what = waiting.pop()
        if node in texts:
            continue
        if (file := file_of(where)) is not None:
            texts[node] = file.text(what)
            waiting += file.uses(what)
        elif what not in (_ALL, _ALWAYS) and _file(f"{where}.{what}") is not None:
            waiting.append((f"{where}.{what}", _ALL))  # of a package without a file
        elif what != _ALWAYS:
            outside.add(where.partition(".")[0])
    code = "\n".join(f"{where}:{what}\n{text}" for (where, what), text in sorted(texts.items()) if text)
    digest = hashlib.sha256(code.encode()).hexdigest()[:12] if texts else ""
    return Reached(digest=digest, packages=frozenset(outside))


def files_of(references: Iterable[str]) -> dict[str, Path]:
    """Return the user's files in which references are defined, and of all that these import, by module name.

    Imports in functions are followed too, and the packages that contain a module are included. Modules of the standard
    library, of installed packages and of this distribution are left out, and so are missing modules.

    Args:
        references: References ``package.module:attribute``.
    """
    files: dict[str, Path] = {}
    waiting = [reference.partition(":")[0] for reference in references]
    while waiting:
        name = waiting.pop()
        if name not in files and (file := _file(name)) is not None:
            files[name] = file.path
            waiting += [*_above(name), *(module for _, module, _ in file.bound(*file.body))]
    return dict(sorted(files.items()))


@dataclass(frozen=True)
class _File:
    """A file of the user's."""

    name: str
    path: Path

    @cached_property
    def body(self) -> list[ast.stmt]:
        """The statements of the file; one that is not Python's counts by its bytes."""
        content = self.path.read_bytes()
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):
            tree = ast.parse(repr(content))
        _Bare().visit(tree)
        return [statement for statement in tree.body if not _is_idle(statement)]

    @cached_property
    def _imports(self) -> list[tuple[str, str, str]]:
        """What the imports at the top bind, see :meth:`bound`."""
        return [bound for statement in self.body for bound in self._bound(statement)]

    @cached_property
    def _own(self) -> set[str]:
        """The names that the file defines itself."""
        return {name for statement in self.body for name in _names(statement)}

    @cached_property
    def _defined(self) -> dict[str, list[ast.stmt]]:
        """The statements that define or change each name, those of none under ``_ALWAYS``, all under ``_ALL``."""
        result: dict[str, list[ast.stmt]] = {_ALL: self.body, _ALWAYS: []}
        for statement in self.body:
            names = [*_names(statement), *(name for name, *_ in self._bound(statement) if name != _ALL)]
            if isinstance(statement, ast.Assign | ast.AugAssign):
                changed = map(_root, _targets(statement))
                names += [name if name in self._own else _ALWAYS for name in changed]
            for name in dict.fromkeys(names or [_ALWAYS]):
                result.setdefault(name, []).append(statement)
        return result

    def declared(self, name: str) -> int | None:
        """Return the number in ``version = 3`` in a class, or in ``name.version = 3`` beside a function."""
        classes = (defined for defined in self._defined.get(name, []) if isinstance(defined, ast.ClassDef))
        targets = [(statement, f"{name}.version") for statement in self.body]
        targets += [(statement, "version") for one_class in classes for statement in one_class.body]
        for statement, target in targets:
            match statement:
                case ast.Assign([to], ast.Constant(int(number))) if ast.unparse(to) == target:
                    return number
        return None

    def text(self, name: str) -> str:
        """Return the code of a definition, and which modules its names stand for."""
        statements = self._defined.get(name, [])
        used = {node.id for top in statements for node in ast.walk(top) if isinstance(node, ast.Name)}
        modules = [f"{n} is {module}" for n, module, what in self._imports if what == _ALL and n in used]
        return "\n".join([*map(ast.unparse, statements), *modules])

    def uses(self, name: str) -> Iterator[Node]:
        """Yield what a definition refers to: names of this file, and of the modules that it imports."""
        yield from ((module, _ALWAYS) for module in (self.name, *_above(self.name)))
        if name == _ALWAYS:
            yield from ((module, _ALWAYS) for _, module, _ in self._imports)
        elif name not in self._defined:
            module = f"{self.name}.{name}"
            yield (module if _file(module) is not None else self.name), _ALL
        statements = self._defined.get(name, [])
        yield from ((module, what) for _, module, what in self.bound(*statements))
        for statement in statements:
            yield from self._named(statement)

    def _named(self, statement: ast.stmt) -> Iterator[Node]:
        """Yield what a statement's names stand for; of a module, the attribute or, if it is passed on, all of it."""
        nodes = list(ast.walk(statement))
        attributes = {id(node.value): node.attr for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.Name):
                modules = [module for name, module, what in self._imports if name == node.id and what == _ALL]
                yield from ((module, attributes.get(id(node), _ALL)) for module in modules)
                if node.id in (self._own if modules else self._defined):
                    yield self.name, node.id
            if {getattr(node, "id", ""), getattr(node, "attr", "")} & _DYNAMIC:
                yield self.name, _ALL

    def bound(self, *statements: ast.stmt) -> Iterator[tuple[str, str, str]]:
        """Yield what each import in statements binds: the name here, the module, and the name there or ``*``."""
        yield from (bound for top in statements for node in ast.walk(top) for bound in self._bound(node))

    def _bound(self, node: ast.AST) -> Iterator[tuple[str, str, str]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name, _ALL
        elif isinstance(node, ast.ImportFrom):
            package = self.name.split(".")
            if node.level:
                package = package[: max(0, len(package) - node.level + (self.path.name == "__init__.py"))]
            module = ".".join([*(package if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                there = (module, alias.name) if _spec(inner) is None else (inner, _ALL)
                yield alias.asname or alias.name, *there


class _Bare(ast.NodeTransformer):
    """Takes docstrings, other bare strings and annotations out of a tree, which change no result."""

    def __init__(self) -> None:
        self._fields: set[int] = set()

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.ClassDef):
            self._fields |= set(map(id, node.body))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        super().generic_visit(node)
        if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if id(node) in self._fields:  # a dataclass has a field for it, unless it is a ClassVar
            is_special = "Var" in ast.unparse(node.annotation)
            node.annotation = node.annotation if is_special else ast.Name("_")
            return node
        return None if node.value is None else ast.copy_location(ast.Assign([node.target], node.value), node)


def _is_idle(statement: ast.stmt) -> bool:
    """Return whether a statement runs only in a script or for a type checker."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    test = ast.unparse(statement.test)
    return test.startswith("__name__ == ") or test in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines, without imports."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = _targets(statement) if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _targets(statement: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    """Return the names to which a statement assigns, and the attributes and items, as in ``TABLE["name"] = 1``."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    nodes = [node for target in targets for node in ast.walk(target)]
    kinds = ast.Name | ast.Attribute | ast.Subscript
    return [node for node in nodes if isinstance(node, kinds) and isinstance(node.ctx, ast.Store)]


def _root(expression: ast.expr) -> str:
    """Return the name with which an expression such as ``name.attribute[0]`` begins; empty if it begins otherwise."""
    while isinstance(expression, ast.Attribute | ast.Subscript):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _above(module: str) -> list[str]:
    """Return the packages around a module."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _file(name: str) -> _File | None:
    """Return the file of a module of the user's; None for installed and built-in modules, and for those of ours."""
    spec = None if name.partition(".")[0] in OURS else _spec(name)
    path = Path(spec.origin) if spec is not None and spec.origin is not None else None
    if path is None or not path.is_file() or not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return None
    return None if path.is_relative_to(sysconfig.get_path("stdlib")) else _File(name, path)


def _spec(name: str) -> ModuleSpec | None:
    """Return a module's spec; unlike ``importlib.util.find_spec`` this imports no package above it."""
    top, *parts = name.split(".")
    spec = None
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(top)
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return None
        top = f"{top}.{part}"
        finders = filter(None, map(pkgutil.get_importer, spec.submodule_search_locations))
        specs = [spec for finder in finders if (spec := finder.find_spec(top)) is not None]
        spec = next((spec for spec in specs if spec.loader is not None), specs[0] if specs else None)
    return spec
