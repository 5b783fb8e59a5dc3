"""The canonical text of a piece of source: equal for equal programs, on every version of Python.

It contains no comments, formatting, docstrings or annotations, and no code that only type checkers read. In our own
modules it contains no texts of errors and warnings either.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator

__all__ = [
    "digest_of",
    "for_types_alone",
    "meant",
    "runs_as_script",
    "without_extensions",
    "without_messages",
]

_BODIES = frozenset({"body", "orelse", "finalbody"})
_IMPORTS = (ast.Import, ast.ImportFrom)
# The bodies of these statements always run. The others are branches, in which it matters what is imported where.
_PLAIN = (
    *(ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.With, ast.AsyncWith),
)
# `ctx` follows from a name's position.
_SKIPPED = frozenset({"ctx", "type_comment", "kind", "returns", "annotation"})
_MESSAGES = {"check": 1, "warnings.warn": 0}  # the position of the message in a call of each
_MARKS = ("ClassVar", "InitVar", "KW_ONLY")  # annotations that change how a dataclass treats a field


def digest_of(nodes: Iterable[ast.AST], keep: frozenset[str] = frozenset()) -> str:
    r"""Return a hash of syntax trees.

    Args:
        nodes: The trees, in order.
        keep: ``"annotations"``, ``"docstrings"`` or both, if the program reads them at run time.

    Example:
        >>> digest_of(ast.parse("def f(x: int): 'text'; return (x)").body) == digest_of(
        ...     ast.parse("def f(x):\n    return x  # a comment").body
        ... )
        True
    """
    text = "".join(part for node in nodes for part in _parts(node, keep, of_class=False))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def for_types_alone(node: ast.AST) -> bool:
    """Return whether a statement is ``if TYPE_CHECKING:``, whose body never runs."""
    test = node.test if isinstance(node, ast.If) else None
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def runs_as_script(node: ast.AST) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``, whose body does not run on import."""
    test = node.test if isinstance(node, ast.If) else None
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = [test.left, *test.comparators]
    named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return named and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)


def meant(
    body: Iterable[ast.stmt], keep: frozenset[str] = frozenset(), imports: bool = False
) -> Iterator[ast.stmt]:
    """Yield the statements of a body that do something; those that import something only with ``imports``."""
    for statement in body:
        if for_types_alone(statement) or runs_as_script(statement):
            assert isinstance(statement, ast.If)  # noqa: S101 - for the type checker
            yield from meant(statement.orelse, keep, imports)
        elif not _is_idle(statement, keep, imports):
            yield statement


def without_extensions(tree: ast.Module) -> ast.Module:
    r"""Return a module with the usual value at each extension point.

    The other entries of an extension point count only for the arms that name them.

    Example:
        >>> text = "from topk_platform.extensions import extended\nlearner = extended(Session, LEARNERS, name)"
        >>> ast.unparse(without_extensions(ast.parse(text))).splitlines()[-1]
        'learner = Session'
    """
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    if any(f"{node.module}" == "topk_platform.extensions" for node in imports):
        _Usual().visit(tree)
    return tree


class _Usual(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[0] if isinstance(node.func, ast.Name) and node.func.id == "extended" else node


def without_messages(tree: ast.Module) -> ast.Module:
    r"""Return a module with empty texts of errors and warnings, because no result depends on them.

    Use it only for code that reads no messages, such as ours. The texts are those of ``raise`` and ``assert``, and the
    messages of our function ``check`` and of ``warnings.warn``. The other arguments stay.

    Example:
        >>> text = "assert k, 'no k'\nif k < 1:\n    raise ValueError(f'k must be at least 1, got {k}', k)"
        >>> print(ast.unparse(without_messages(ast.parse(text))))
        assert k
        if k < 1:
            raise ValueError('', k)
        >>> print(ast.unparse(without_messages(ast.parse("check(k > 0, f'k must be positive, got {k}')"))))
        check(k > 0, '')
    """
    _WithoutMessages().visit(tree)
    return tree


class _WithoutMessages(ast.NodeTransformer):
    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args = [_without_text(value) for value in node.exc.args]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        at = _MESSAGES.get(ast.unparse(node.func), len(node.args))
        node.args[at : at + 1] = [_without_text(value) for value in node.args[at : at + 1]]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return node


def _without_text(value: ast.expr) -> ast.expr:
    return ast.Constant("") if _is_text(value) else value


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression is a string or an operation on a string, and binds no name."""
    if any(
        isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom) for part in ast.walk(node)
    ):
        return False
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_idle(statement: ast.stmt, keep: frozenset[str], imports: bool) -> bool:
    # Imports count where their names are used, by the definitions that the names lead to.
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return not ("docstrings" in keep and isinstance(statement.value.value, str))
    return isinstance(statement, ast.Pass) or (isinstance(statement, _IMPORTS) and not imports)


def _parts(node: ast.AST, keep: frozenset[str], *, of_class: bool) -> Iterator[str]:
    if isinstance(node, ast.AnnAssign):
        yield from _annotated(node, keep, of_class=of_class)
        return
    yield f"{type(node).__name__}("
    fields = _joined(node) if isinstance(node, ast.JoinedStr) else ast.iter_fields(node)
    for name, value in fields:
        if name in ("returns", "annotation") and isinstance(value, ast.AST) and _is_kept(value, keep):
            yield f"{name}={_text(value)},"
        elif name not in _SKIPPED and value is not None and value != []:
            yield f"{name}="
            yield from (
                _body(node, value, keep)
                if name in _BODIES and isinstance(value, list)
                else _value(value, keep)
            )
            yield ","
    yield ")"


def _is_kept(annotation: ast.AST, keep: frozenset[str]) -> bool:
    """Return whether an annotation counts: all do if the program reads them, and Triton reads ``tl.constexpr``."""
    return "annotations" in keep or "constexpr" in _text(annotation)


def _text(annotation: ast.AST) -> str:
    return "".join(_parts(annotation, frozenset(), of_class=False))


def _body(node: ast.AST, body: list[ast.stmt], keep: frozenset[str]) -> Iterator[str]:
    yield "["
    is_branch = not isinstance(node, _PLAIN) and not for_types_alone(node)
    for item in meant(body, keep, imports=is_branch):
        text = "".join(_parts(item, keep, of_class=isinstance(node, ast.ClassDef)))
        if text:  # a name that is only annotated has none
            yield f"{text},"
    yield "]"


def _value(value: object, keep: frozenset[str]) -> Iterator[str]:
    if isinstance(value, ast.AST):
        yield from _parts(value, keep, of_class=False)
    elif isinstance(value, list):
        yield "["
        for item in value:
            yield from (*_value(item, keep), ",")
        yield "]"
    elif isinstance(value, int) and not isinstance(value, bool):
        yield hex(value)  # Python limits the length of decimals
    else:
        yield f"{type(value).__name__}:{value!r}"


def _annotated(node: ast.AnnAssign, keep: frozenset[str], *, of_class: bool) -> Iterator[str]:
    """Yield an assignment as if it had no annotation; in a class, a name without a value is a field."""
    if node.value is None and not of_class:
        return
    text = _text(node.annotation)
    kept = text if _is_kept(node.annotation, keep) else ",".join(mark for mark in _MARKS if mark in text)
    yield f"Field({kept}," if of_class else "Assign(targets=["
    yield from _parts(node.target, keep, of_class=False)
    yield "," if of_class else ",],"
    if node.value is not None:
        yield "value="
        yield from _parts(node.value, keep, of_class=False)
        yield ","
    yield ")"


def _joined(node: ast.JoinedStr) -> Iterator[tuple[str, object]]:
    """Yield the parts of an f-string; adjacent texts are joined, because versions of Python split them differently."""
    parts: list[ast.AST] = []
    for value in node.values:
        last = parts[-1] if parts else None
        if isinstance(value, ast.Constant) and isinstance(last, ast.Constant):
            parts[-1] = ast.Constant(str(last.value) + str(value.value))
        else:
            parts.append(value)
    yield "values", [part for part in parts if not (isinstance(part, ast.Constant) and part.value == "")]
