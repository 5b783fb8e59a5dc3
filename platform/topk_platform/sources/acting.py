"""Whether code that runs on import may do more than bind names."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from topk_platform.sources.finding import is_ours, top_of

__all__ = ["CHANGING", "Acts", "acts_of"]

# Functions and packages of libraries that return a value and change nothing else.
_CALM = (
    *(
        "torch.no_grad",
        "torch.enable_grad",
        "torch.inference_mode",
        "torch.jit",
        "torch.compile",
        "torch.compiler",
    ),
    *("numba.njit", "numba.jit", "numba.vectorize", "numba.guvectorize", "triton", "numpy"),
)
_RESTLESS = (
    "numpy.random",
    "numpy.seterr",
    "numpy.seterrcall",
    "random",
    "os",
    "sys",
    "atexit",
    "locale",
    "signal",
)
# Built-in functions that may change something.
_ACTING = frozenset({"exec", "eval", "setattr", "delattr", "open", "__import__"})
CHANGING = frozenset(
    {
        *("add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop"),
        *("popitem", "register", "remove", "reverse", "setdefault", "sort", "update", "__setitem__"),
    }
)
"""Methods that change the object that they belong to."""


@dataclass
class Acts:
    """The effects that code may have.

    Args:
        acts: Whether the code may change something that it did not create.
        calls: The names that the code calls; the called code must be examined too.
        own: The names that the code's module defines.
    """

    acts: bool = False
    calls: set[str] = field(default_factory=set)
    own: frozenset[str] = frozenset()


def acts_of(
    nodes: Iterable[ast.AST],
    imports: Mapping[str, Sequence[str]],
    own: Collection[str] = (),
    *,
    on_import: bool,
) -> Acts:
    """Return the effects that statements may have.

    Args:
        nodes: The statements.
        imports: The names that the module's imports bind, each with its ``module:attribute``.
        own: The names that the module defines; they may hide built-in functions.
        on_import: Whether the statements run only by an import. An import runs decorators and default values, but not
            the bodies of functions.
    """
    result = Acts(own=frozenset(own))
    for node in nodes:
        _look(node, imports, result, {}, on_import, top=on_import)
    return result


def _look(
    node: ast.AST,
    imports: Mapping[str, Sequence[str]],
    result: Acts,
    local: Mapping[str, bool],
    on_import: bool,
    top: bool = False,
) -> None:
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        local = local if on_import else {**local, **_own_names(node)}
        for decorator in getattr(node, "decorator_list", ()):
            _called(decorator, imports, result, local)
        children = [node.args, *getattr(node, "decorator_list", ())] if on_import else children
    elif isinstance(node, _COMPREHENSION):
        local = {**local, **_own_names(node)}
    elif isinstance(node, ast.ClassDef):
        result.acts |= any(k.arg != "metaclass" or ast.unparse(k.value) != "ABCMeta" for k in node.keywords)
        for decorator in node.decorator_list:
            _called(decorator, imports, result, local)
    elif isinstance(node, ast.Call):
        _called(node.func, imports, result, local)
    elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        result.acts |= local.get(_root(node), True)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        result.acts |= local.get(node.target.id, node.target.id in imports)  # `+=` and `|=` change a table
    elif isinstance(node, (ast.Delete, ast.Global)) or (top and isinstance(node, _LOUD)):
        result.acts = True
    top = top and isinstance(node, (ast.If, ast.Try, ast.ExceptHandler))
    for child in children:
        _look(child, imports, result, local, on_import, top)


_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OLD = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.Await)
_LOUD = (
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Expr,
    ast.Assert,
    ast.Raise,
    ast.Match,
)


def _own_names(function: ast.AST) -> dict[str, bool]:
    """Return a function's own names, each with whether others may keep its value, such as that of an argument."""
    parts = list(ast.walk(function))
    new = {id(name) for part in parts for name in _new(part)}
    stored = [n for n in parts if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    shared = {n.id for n in stored if id(n) not in new} | {n.arg for n in parts if isinstance(n, ast.arg)}
    names = {**dict.fromkeys((n.id for n in stored), False), **dict.fromkeys(shared, True)}
    if isinstance(function, ast.FunctionDef) and function.name == "__init__":
        names |= {one.arg: False for one in function.args.args[:1]}  # the object is new
    return names


def _new(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the names to which a statement gives a new object; ``a = TABLE`` and ``a = get()`` may give an old one."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        value = node.value
        built = value.func if isinstance(value, ast.Call) else None
        if not isinstance(value, _OLD) or (isinstance(built, ast.Name) and hasattr(builtins, built.id)):
            yield from node.targets if isinstance(node, ast.Assign) else [node.target]
    elif isinstance(node, ast.AugAssign):
        yield node.target


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _called(
    node: ast.AST, imports: Mapping[str, Sequence[str]], result: Acts, local: Mapping[str, bool]
) -> None:
    root = _root(node)
    if not root or root in local:  # a method of a value, such as "".join, or a call of an argument
        result.acts |= local.get(root, False) and isinstance(node, ast.Attribute) and node.attr in CHANGING
        return
    if root in imports:
        for target in imports[root]:
            _called_import(f"{target.replace(':', '.')}.{_rest(node)}".strip("."), node, result)
    elif hasattr(builtins, root) and root not in result.own:
        changing = isinstance(node, ast.Attribute) and node.attr in CHANGING  # such as list.append(TABLE, f)
        result.acts |= root in _ACTING or changing
    else:
        result.calls.add(_chain(node))


def _called_import(name: str, node: ast.AST, result: Acts) -> None:
    within = [name == one or name.startswith(f"{one}.") for one in _CALM]
    restless = [name == one or name.startswith(f"{one}.") for one in _RESTLESS]
    if any(restless) or name.startswith("os."):
        result.acts |= not name.startswith(("os.path", "os.environ.get", "os.fspath", "os.getenv"))
    elif is_ours(name) or top_of(name) in sys.stdlib_module_names or any(within):
        return
    else:
        result.calls.add(_chain(node))


def _rest(node: ast.AST) -> str:
    names: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    return ".".join(reversed(names))


def _chain(node: ast.AST) -> str:
    return ".".join(filter(None, (_root(node), _rest(node))))
