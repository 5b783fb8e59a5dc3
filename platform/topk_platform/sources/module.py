"""The definitions of one module: the hash of each, and the names that it uses."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from topk_platform.sources.acting import acts_of
from topk_platform.sources.canonical import (
    digest_of,
    for_types_alone,
    meant,
    runs_as_script,
    without_extensions,
    without_messages,
)
from topk_platform.sources.finding import Source, is_ours
from topk_platform.sources.scopes import absolute, imported, uses_of

__all__ = ["Definition", "Module", "analysed"]

# A module that uses one of these names may read its annotations or docstrings at run time, so they count there.
_READERS = {
    "annotations": frozenset(
        {
            *("__annotations__", "get_type_hints", "get_annotations", "pydantic", "beartype", "typeguard"),
            *("jaxtyping", "singledispatch", "singledispatchmethod", "@register", "script"),
        }
    ),
    "docstrings": frozenset({"__doc__", "getdoc"}),
}


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Definition:
    """The definition of a name of a module.

    Args:
        digest: Hash of the definition's own code; the definitions that its names lead to are not included.
        chains: The names that it uses, see :class:`~topk_platform.sources.scopes.Uses`.
        attributes: The names of the attributes that it uses.
        blind: Whether it uses names that cannot be read from its syntax, such as by ``globals()``.
        acts: Whether importing or calling it may change something outside of it.
        calls: The names that it calls when it is imported or called; the called code may act too.
        bases: The bases of a class.
        is_value: Whether it is a value, neither a function nor a class.
    """

    digest: str
    chains: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    blind: bool = False
    acts: bool = False
    calls: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    is_value: bool = False


@dataclass(frozen=True)
class Module:
    """A module as its source defines it; nothing is run.

    Args:
        definitions: The definitions by name. A method has the name ``CLASS.METHOD``, a class without its methods
            ``CLASS.``, and an entry of a dictionary ``NAME[KEY]``.
        imports: The names that imports bind, each with the ``module:attribute`` that it may stand for.
        lazy: The same for imports under ``if TYPE_CHECKING:``. They show what the module's ``__getattr__`` returns.
        stars: The modules that are imported with ``*``.
        runs: The modules that importing this one imports.
        statements: The top-level statements and definitions that run on import and may act.
        is_package: Whether it is a package's ``__init__.py``.
    """

    definitions: Mapping[str, Definition] = field(default_factory=dict)
    imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lazy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stars: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    statements: tuple[Definition, ...] = ()
    is_package: bool = False

    @property
    def names(self) -> set[str]:
        """The names that the module binds."""
        return {name for name in self.definitions if name.isidentifier()} | self.imports.keys()

    @property
    def imported_later(self) -> Iterator[str]:
        """The modules that the module's functions import, if their names are in the source."""
        for definition in self.definitions.values():
            for chain in definition.chains:
                if chain[0] in "~=":
                    base, _, attribute = chain[1:].partition(":")
                    yield base
                    yield f"{base}.{attribute.partition('.')[0]}"

    def to_data(self) -> dict[str, Any]:
        """Return the module as JSON-ready data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Module:
        """Return the module that :meth:`to_data` has written."""
        return cls(
            definitions={name: _definition(item) for name, item in data["definitions"].items()},
            imports={name: tuple(item) for name, item in data["imports"].items()},
            lazy={name: tuple(item) for name, item in data["lazy"].items()},
            stars=tuple(data["stars"]),
            runs=tuple(data["runs"]),
            statements=tuple(_definition(item) for item in data["statements"]),
            is_package=data["is_package"],
        )


def _definition(data: Mapping[str, Any]) -> Definition:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return Definition(**fields)


def analysed(source: Source, content: bytes) -> Module:
    """Return the analysis of a module; if it cannot be parsed, a single statement with a hash of the module's bytes."""
    try:
        tree = ast.parse(content) if source.path.suffix == ".py" else None
    except (SyntaxError, ValueError):  # such as a file that is half written; importing it raises the error
        tree = None
    if tree is None:
        bytes_ = Definition(hashlib.sha256(content).hexdigest()[:16], acts=True)
        return Module(statements=(bytes_,))
    return _Reading(source, tree).module()


class _Reading:
    """The analysis of one module."""

    def __init__(self, source: Source, tree: ast.Module) -> None:
        self._source = source
        self._tree = without_extensions(without_messages(tree) if is_ours(source.name) else tree)
        self._keep = _kept(tree)
        self._imports: dict[str, list[str]] = {}
        self._lazy: dict[str, list[str]] = {}
        self._stars: list[str] = []
        self._runs: dict[str, None] = {}
        self._statements: dict[str, list[ast.stmt]] = {}
        self._acting: list[Definition] = []

    def module(self) -> Module:
        self._bind_imports(self._tree.body, self._imports)
        definitions: dict[str, Definition] = {}
        statements = list(meant(self._tree.body, self._keep))
        for statement in statements:
            for name in set(_names(statement)):
                self._statements.setdefault(name, []).append(statement)
        for statement in statements:
            acting = self._definition([statement], on_import=True)
            if acting.acts or acting.calls or acting.bases:
                self._acting.append(acting)
        for name, binding in self._statements.items():
            definitions[name] = self._definition(binding)
            definitions |= self._inside(name, binding[-1])
        return Module(
            definitions=definitions,
            imports={name: tuple(targets) for name, targets in self._imports.items()},
            lazy={name: tuple(targets) for name, targets in self._lazy.items()},
            stars=tuple(self._stars),
            runs=tuple(self._runs),
            statements=tuple(self._acting),
            is_package=self._source.is_package,
        )

    def _definition(self, nodes: Iterable[ast.AST], *, on_import: bool = False) -> Definition:
        nodes = list(nodes)
        uses = uses_of(nodes, self._source.package, "annotations" in self._keep)
        acts = acts_of(nodes, self._imports, self._statements, on_import=on_import)
        bases = [b for n in nodes if isinstance(n, ast.ClassDef) for b in n.bases]
        return Definition(
            digest=digest_of(nodes, self._keep),
            chains=tuple(sorted(uses.chains)),
            attributes=tuple(sorted(uses.attributes)),
            blind=uses.blind,
            acts=acts.acts,
            calls=tuple(sorted(acts.calls)),
            bases=tuple(sorted(uses_of(bases, self._source.package).chains)),
            is_value=not any(isinstance(n, _NAMED) for n in nodes),
        )

    def _inside(self, name: str, statement: ast.stmt) -> dict[str, Definition]:
        """Return the methods of a class and the class without them; or the entries of a dictionary."""
        if isinstance(statement, ast.ClassDef):
            methods = [s for s in statement.body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))]
            parts = {f"{name}.{method.name}": self._definition([method]) for method in methods}
            given = [s for s in statement.body if isinstance(s, ast.Assign)]
            head = [
                *statement.decorator_list,
                *statement.bases,
                *(k.value for k in statement.keywords),
                *given,
            ]
            return {**parts, f"{name}.": self._definition(head)}
        value = getattr(statement, "value", None)
        if not isinstance(value, ast.Dict) or not all(
            isinstance(k, (ast.Constant, ast.Name)) for k in value.keys
        ):
            return {}
        entries = zip(value.keys, value.values, strict=True)
        return {f"{name}[{_key(key)}]": self._definition([item]) for key, item in entries}

    def _bind_imports(self, body: Iterable[ast.stmt], into: dict[str, list[str]]) -> None:
        for statement in body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._bind_import(statement, into)
            elif for_types_alone(statement):
                assert isinstance(statement, ast.If)  # noqa: S101 - for the type checker
                self._bind_imports(statement.body, self._lazy)
                self._bind_imports(statement.orelse, into)
            elif not runs_as_script(statement):
                for name in ("body", "orelse", "finalbody"):
                    if not isinstance(statement, _NAMED):
                        self._bind_imports(getattr(statement, name, ()), into)
                for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                    self._bind_imports(part.body, into)

    def _bind_import(self, node: ast.Import | ast.ImportFrom, into: dict[str, list[str]]) -> None:
        for name, target in imported(node, self._source.package):
            if name == "*":
                self._stars.append(target.partition(":")[0])
            else:
                into.setdefault(name, []).append(target)
        if into is self._imports:
            self._runs |= dict.fromkeys(_run(node, self._source.package))


def _run(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """Yield the modules that an import runs; a name that is imported from a package may be a module too."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = absolute(node.module or "", node.level, package)
    yield base
    yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _kept(tree: ast.Module) -> frozenset[str]:
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            words.update((node.module or "").split("."))
            words.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            words.update(part for alias in node.names for part in alias.name.split("."))
        words.update(f"@{decorator.attr}" for decorator in _decorators(node))
    return frozenset(kind for kind, readers in _READERS.items() if words & readers)


def _decorators(node: ast.AST) -> Iterator[ast.Attribute]:
    yield from (one for one in getattr(node, "decorator_list", ()) if isinstance(one, ast.Attribute))


def _key(key: ast.expr | None) -> str:
    return str(key.value) if isinstance(key, ast.Constant) else getattr(key, "id", "")


def _names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds in its module; a statement that is an import itself is left out."""
    if isinstance(statement, _NAMED):
        yield statement.name
        return
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _NAMED):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):  # the statement decides whether the import runs
            yield from (name for name, _ in imported(node, "") if name != "*")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            waiting += ast.iter_child_nodes(node)
