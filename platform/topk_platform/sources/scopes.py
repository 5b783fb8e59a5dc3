"""Which names of a module a piece of its code uses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from topk_platform.sources.canonical import for_types_alone, runs_as_script

__all__ = ["ANY", "Uses", "absolute", "imported", "uses_of"]

ANY = "*"
"""The name of an attribute that is not known."""

_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Comprehension = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLIND = frozenset({"globals", "locals", "eval", "exec", "__import__"})  # reach names that no syntax shows
_SYS = ast.dump(ast.Name("sys", ast.Load()))


@dataclass
class Uses:
    """What a piece of code uses.

    Args:
        chains: Names of the module with the attributes behind them, such as ``functional.focal``; what an import in
            a function leads to begins with ``=``, such as ``=topk_losses.functional.focal``.
        attributes: All names of attributes, for which of a class's methods may be called.
        blind: Whether it reaches names that its syntax does not show.
    """

    chains: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    blind: bool = False


def uses_of(nodes: Iterable[ast.AST], package: str, annotations: bool = False) -> Uses:
    """Return what statements of a module use.

    Args:
        nodes: The statements.
        package: The package that relative imports begin from.
        annotations: Whether annotations count.
    """
    visitor = _Visitor(package, annotations)
    for node in nodes:
        visitor.visit(node)
    return visitor.found


def imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, each with what it is, as ``module:attribute`` or ``module:``.

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
        name: As written.
        level: The number of dots before it.
        package: The package of the module in which it stands.
    """
    if not level:
        return name
    parents = package.split(".")
    above = parents[: max(0, len(parents) - level + 1)]
    return ".".join(part for part in (*above, name) if part)


class _Visitor(ast.NodeVisitor):
    def __init__(self, package: str, annotations: bool) -> None:
        self.found = Uses()
        self._package, self._annotations = package, annotations
        self._scopes: list[
            dict[str, str]
        ] = []  # of functions: what is local, and what an import there leads to

    def visit_If(self, node: ast.If) -> None:
        if for_types_alone(node) or runs_as_script(node):
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._note(node.id, (), isinstance(node.ctx, ast.Load))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.found.attributes.add(node.attr)
        self.found.blind |= ast.dump(node.value) == _SYS and node.attr == "modules"
        names, root = [node.attr], node.value
        while isinstance(root, ast.Attribute):
            self.found.attributes.add(root.attr)
            names.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            self._note(root.id, names[::-1], True)
        else:
            self.visit(root)

    def _note(self, name: str, rest: Iterable[str], read: bool) -> None:
        self.found.blind |= name in _BLIND
        scope = next((scope for scope in reversed(self._scopes) if name in scope), None)
        if scope is None:
            if read or self._scopes:  # a function that sets a name of its module's
                self.found.chains.add(".".join((name, *rest)))
        elif scope[name]:
            self.found.chains.add(_chain(scope[name], rest))

    def visit_Call(self, node: ast.Call) -> None:
        named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [_text(argument) for argument in node.args]
        if named == "getattr" and len(texts) > 1:
            self.found.attributes.add(texts[1] or ANY)
        if named == "import_module" and texts:
            self.found.chains.add(f"={texts[0]}:")
            self.found.blind |= not texts[0] or texts[0].startswith(".")
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.found.chains.add(f"~{alias.name}")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = absolute(node.module or "", node.level, self._package)
        self.found.chains.add(f"~{base}")

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

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function  # noqa: N815 - as ast calls them

    def _visit_comprehension(self, node: ast.AST) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        targets = [name for one in generators for name in _stored(one.target)]
        self._scopes.append(dict.fromkeys(targets, ""))
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
) -> dict[str, str]:
    """Return a function's own names; of those that an import binds, what they lead to."""
    found = dict.fromkeys((argument.arg for argument in _arguments(function)), "")
    outer: set[str] = set()
    for node in _inside(body):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            outer.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(imported(node, package))
        else:
            found.update(dict.fromkeys(_bound(node), ""))
    return {name: target for name, target in found.items() if name not in outer}


def _inside(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a body, without those of functions and classes in it."""
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
