"""The names of a module that a piece of its code uses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from topk_platform.sources.canonical import for_types_alone, runs_as_script

__all__ = ["ANY", "Uses", "absolute", "imported", "uses_of"]

ANY = "*"
"""The name of an attribute that cannot be read from the syntax."""

_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Comprehension = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLIND = frozenset(
    {"globals", "locals", "eval", "exec", "__import__"}
)  # use names that cannot be read from the syntax
_SYS = ast.dump(ast.Name("sys", ast.Load()))


@dataclass
class Uses:
    """The names that a piece of code uses.

    Args:
        chains: Names of the module with the attributes that follow, such as ``functional.focal``. A name that an import
            in a function binds begins with ``=``, such as ``=topk_losses.functional:focal``. A module that such an
            import runs begins with ``~``, such as ``~topk_losses.functional``.
        attributes: The names of all attributes; they show which methods of a class may be called.
        blind: Whether the code uses names that cannot be read from its syntax.
    """

    chains: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    blind: bool = False


def uses_of(nodes: Iterable[ast.AST], package: str, annotations: bool = False) -> Uses:
    """Return the names that statements of a module use.

    Args:
        nodes: The statements.
        package: The package that relative imports are relative to.
        annotations: Whether annotations count.
    """
    visitor = _Visitor(package, annotations)
    for node in nodes:
        visitor.visit(node)
    return visitor.uses


def imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, each with its target: ``module:attribute`` or ``module:``.

    Example:
        >>> list(imported(ast.parse("from ..rows import best as b").body[0], "lab.tools"))
        [('b', 'lab.rows:best')]
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or whole, f"{whole}:"
        return
    base = absolute(node.module or "", node.level, package)
    for alias in node.names:
        yield alias.asname or alias.name, f"{base}:{alias.name}"


def absolute(name: str, level: int, package: str) -> str:
    """Return a module's full name.

    Args:
        name: The module's name as written in the import.
        level: The number of dots before it.
        package: The package of the module that contains the import.
    """
    if not level:
        return name
    parents = package.split(".")
    above = parents[: max(0, len(parents) - level + 1)]
    return ".".join(part for part in (*above, name) if part)


class _Visitor(ast.NodeVisitor):
    def __init__(self, package: str, annotations: bool) -> None:
        self.uses = Uses()
        self._package, self._annotations = package, annotations
        # The own names of each enclosing function, each with the targets of its imports.
        self._scopes: list[dict[str, set[str]]] = []
        self._in_class = False

    def visit_If(self, node: ast.If) -> None:
        if for_types_alone(node) or runs_as_script(node):
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._note(node.id, (), isinstance(node.ctx, ast.Load))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.uses.attributes.add(node.attr)
        self.uses.blind |= ast.dump(node.value) == _SYS and node.attr == "modules"
        names, root = [node.attr], node.value
        while isinstance(root, ast.Attribute):
            self.uses.attributes.add(root.attr)
            names.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            self._note(root.id, names[::-1], True)
        else:
            self.visit(root)

    def _note(self, name: str, rest: Iterable[str], read: bool) -> None:
        self.uses.blind |= name in _BLIND
        scope = next((scope for scope in reversed(self._scopes) if name in scope), None)
        if scope is None:
            if read or self._scopes:  # a function may set a name of its module
                self.uses.chains.add(".".join((name, *rest)))
        else:
            self.uses.chains.update(_chain(target, rest) for target in scope[name])

    def visit_Call(self, node: ast.Call) -> None:
        named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [_text(argument) for argument in node.args]
        if named == "getattr" and len(texts) > 1:
            self.uses.attributes.add(texts[1] or ANY)
        if named in ("import_module", "__import__"):
            self._note_module([*texts, *(_text(k.value) for k in node.keywords if k.arg == "name")])
        self.generic_visit(node)

    def _note_module(self, texts: list[str]) -> None:
        name = texts[0] if texts else ""
        bare = name.lstrip(".")
        self.uses.chains.add(f"={absolute(bare, len(name) - len(bare), self._package)}:")
        self.uses.blind |= bare == "" or bare != name

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.uses.chains.add(f"~{alias.name}")
        self._note_outer(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = absolute(node.module or "", node.level, self._package)
        self.uses.chains.add(f"~{base}")
        self._note_outer(node)

    def _note_outer(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note what a function imports for its whole module, or a class as its attribute."""
        if self._scopes or self._in_class:
            bound = [(name, target) for name, target in imported(node, self._package) if name != "*"]
            outer = (target for name, target in bound if not any(name in scope for scope in self._scopes))
            self.uses.chains.update(_chain(target, ()) for target in outer)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before, self._in_class = self._in_class, True
        self.generic_visit(node)
        self._in_class = before

    def visit_arg(self, node: ast.arg) -> None:
        self._visit_annotation(node.annotation)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_annotation(node.annotation)
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def _visit_annotation(self, node: ast.expr | None) -> None:
        if node is not None and self._annotations:
            self.visit(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        outside = [*getattr(node, "decorator_list", []), *node.args.defaults, *node.args.kw_defaults]
        for part in filter(None, outside):
            self.visit(part)
        self._visit_annotation(getattr(node, "returns", None))
        for argument in _arguments(node):
            self.visit(argument)
        body = node.body if isinstance(node.body, list) else [node.body]
        self._scopes.append(_locals(node, body, self._package))
        for part in body:
            self.visit(part)
        self._scopes.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function  # noqa: N815 - the names that ast requires

    def _visit_comprehension(self, node: ast.AST) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        targets = [name for one in generators for name in _stored(one.target)]
        self.visit(
            generators[0].iter
        )  # it is evaluated outside, where a target's name may mean something else
        self._scopes.append({name: set() for name in targets})
        self.generic_visit(node)
        self._scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815


def _chain(target: str, rest: Iterable[str]) -> str:
    module, _, attribute = target.partition(":")
    return f"={module}:{'.'.join(filter(None, (attribute, *rest)))}"


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    given = node.args
    more = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]


def _stored(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


def _locals(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, body: Iterable[ast.AST], package: str
) -> dict[str, set[str]]:
    """Return a function's own names, each with the targets of all its imports; other names have none."""
    names: dict[str, set[str]] = {argument.arg: set() for argument in _arguments(function)}
    outer: set[str] = set()
    for node in _inside(body):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            outer.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, target in imported(node, package):
                names.setdefault(name, set()).add(target)
        else:
            for name in _bound(node):
                names.setdefault(name, set())
    return {name: targets for name, targets in names.items() if name not in outer}


def _inside(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a body, without the bodies of functions and classes in it."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_Function, *_Comprehension, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


_NAMED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, _NAMED) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
