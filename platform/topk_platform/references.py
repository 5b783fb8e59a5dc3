"""Lookup by name: in one of our tables, as ``package.module:attribute`` in any code, or in a package on first use."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from topk_platform.errors import UserError, as_user_error, unknown_name

__all__ = [
    "check_arguments",
    "first_use",
    "import_reference",
    "is_reference",
    "look_up",
    "reference_of",
    "signature_of",
]

T = TypeVar("T")


def is_reference(name: str) -> bool:
    """Return whether ``name`` has the form ``package.module:attribute``."""
    return ":" in name


def import_reference(name: str) -> Any:
    """Return the object that ``package.module:attribute`` names.

    Raises:
        UserError: if there is no such module or attribute, or the module raises an error when it is imported.

    Example:
        >>> import_reference("math:floor")(2.5)
        2
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or module_name.startswith(".") or module_name == "__main__":
        raise UserError(
            f"a reference must be package.module:attribute, so that any process can import it, got {name!r}"
        )
    with as_user_error(f"module {module_name!r}"):
        module = _module(module_name, name)
    if not hasattr(module, attribute):
        raise unknown_name(f"attribute: module {module_name!r} has no", attribute, _defined_in(module))
    return getattr(module, attribute)


def _defined_in(module: ModuleType) -> list[str]:
    """Return the public names that a module defines itself, or all its public names if it defines none."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", module.__name__) == module.__name__
    ] or [name for name in vars(module) if not name.startswith("_")]


def _module(module_name: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UserError(
            f"{reference!r}: there is no module {error.name!r} on the path; {_hint(error.name)}"
        ) from error


def _hint(module_name: str) -> str:
    """Return a hint that names similar files, or else where the module's file must be."""
    here = [file.stem for file in Path.cwd().glob("*.py")]
    near = difflib.get_close_matches(module_name, here, n=2, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}, of the files in this folder?"
    return f"its file must be in this folder, {Path.cwd()}, or its package be installed"


def reference_of(kind: str, value: Any) -> Any:
    """Return the reference ``package.module:attribute`` of a function or a class, and any other value unchanged.

    Args:
        kind: The role of the value in a study, for errors: ``"loss"``, ``"model"``, ``"dataset"`` or ``"measure"``.
        value: A name, or a function or a class at the top of a module that any process can import; or several.

    Raises:
        UserError: if other processes cannot import it, because it is a lambda, is inside a function or a class, or is
            defined in a notebook or a script.

    Example:
        >>> reference_of("loss", "cross_entropy"), reference_of("dataset", is_reference)
        ('cross_entropy', 'topk_platform.references:is_reference')
    """
    if isinstance(value, list | tuple):
        return tuple(reference_of(kind, each) for each in value)
    if isinstance(value, str) or not callable(value):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module is None or name is None:
        why = f"{_description(value)} has no name of its own"
    elif module == "__main__":
        why = "it is defined in a notebook or in the script that runs, which workers do not import"
    elif "<lambda>" in name:
        why = "a lambda has no name"
    elif "." in name:
        why = "it is inside a function or a class"
    elif getattr(sys.modules.get(module), name, None) is value:
        return f"{module}:{name}"
    else:
        why = f"{module}:{name} is something else"
    raise UserError(
        f"{kind} must be a name, or an object that every process can import, got {name or value!r}: {why}. Define it "
        "by `def` or `class` at the top of a file, such as my_lab.py here, and import it from there, or give it as "
        "'my_lab:NAME'"
    )


def look_up(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Return the entry ``name`` of ``table``, or the function or class that a reference names.

    Raises:
        UserError: if there is no such name (similar ones are suggested), or the object that the reference names cannot
            be called.
    """
    if is_reference(name):
        value: T = import_reference(name)
        if not callable(value):
            raise UserError(
                f"{kind} {name} must be a function or a class, got {_description(value)}: "
                f"name a function that returns it, such as `def {kind}(): return ...`"
            )
        return value
    if name not in table:
        raise unknown_name(kind, name, table)
    return table[name]


def signature_of(kind: str, name: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature.

    Raises:
        UserError: if the function has no signature, as some built-in functions.
    """
    try:
        return inspect.signature(function)
    except ValueError as error:
        raise UserError(
            f"{kind} {name} must be a function with a signature: wrap it in a function of yours"
        ) from error


def check_arguments(kind: str, name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise ``UserError`` unless ``function`` can be called with ``given`` as its keyword arguments.

    Example:
        >>> check_arguments("model", "mlp", lambda depth=1: None, {"dept": 2})
        Traceback (most recent call last):
        topk_platform.errors.UserError: unknown parameter: model mlp has no 'dept': did you mean 'depth'? (known: depth)
    """
    signature = signature_of(kind, name, function)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    for argument in given:
        if argument not in signature.parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise unknown_name(f"parameter: {kind} {name} has no", argument, signature.parameters)
    try:
        signature.bind(**given)
    except TypeError as error:
        raise UserError(
            f"{kind} {name} cannot be called {f'with {sorted(given)}' if given else 'without arguments'}: {error}"
        ) from error


def _description(value: object) -> str:
    name = type(value).__name__
    return f"a{'n' if name[0] in 'aeiou' else ''} {name}"


def first_use(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports each of its public names on first use.

    The names and their modules are those that the package imports under ``if TYPE_CHECKING:``, which type checkers
    and editors read too. So each name is written once::

        if TYPE_CHECKING:
            from topk_platform.serving.loader import load_model

        __getattr__ = first_use(__name__)

    Args:
        package: The package's full name.

    Raises:
        AttributeError: from the returned function, for a name that the package does not import.

    Example:
        >>> first_use("topk_platform")("Ledger")
        Traceback (most recent call last):
        AttributeError: module 'topk_platform' has no attribute 'Ledger'
    """
    modules: dict[str, str] = {}

    def load(name: str) -> Any:
        if not modules:
            modules.update(_imports_for_type_checkers(package))
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return load


def _imports_for_type_checkers(package: str) -> Iterator[tuple[str, str]]:
    """Yield each name that a package imports under ``if TYPE_CHECKING:``, with its module."""
    spec = sys.modules[package].__spec__
    source = spec.loader.get_source(package) if spec else ""  # type: ignore[union-attr]
    for statement in ast.parse(source or "").body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for line in statement.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    yield from ((alias.name, line.module) for alias in line.names)
