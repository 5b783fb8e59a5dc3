"""Things found by name: a literal table of ours, or ``package.module:attribute`` of anybody's."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from topk_platform.errors import UserError, unknown_name

__all__ = ["check_arguments", "import_reference", "is_reference", "look_up"]

T = TypeVar("T")


def is_reference(name: str) -> bool:
    """Return whether ``name`` has the form ``package.module:attribute``."""
    return ":" in name


def import_reference(name: str) -> Any:
    """Return the object that ``package.module:attribute`` names.

    Raises:
        UserError: if there is no such module or attribute. An error inside the module is raised as it is.

    Example:
        >>> import_reference("math:floor")(2.5)
        2
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UserError(f"{name!r}: there is no module {error.name!r} on the path") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"{name!r}: {error}") from error
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise unknown_name(f"attribute of module {module_name!r}", attribute, public)
    return getattr(module, attribute)


def look_up(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Return what ``table`` holds under ``name``, or what a reference names.

    Raises:
        UserError: if neither does; near misses are suggested.
    """
    if is_reference(name):
        found: T = import_reference(name)
        return found
    if name not in table:
        raise unknown_name(kind, name, table)
    return table[name]


def check_arguments(kind: str, name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise ``UserError`` unless ``function`` can be called with ``given`` as its keyword arguments.

    Example:
        >>> check_arguments("model", "mlp", lambda hidden=1: None, {"hiden": 2})
        Traceback (most recent call last):
        topk_platform.errors.UserError: unknown parameter of model mlp 'hiden': did you mean 'hidden'? (known: hidden)
    """
    signature = inspect.signature(function)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    for argument in given:
        if argument not in signature.parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise unknown_name(f"parameter of {kind} {name}", argument, signature.parameters)
    try:
        signature.bind(**given)
    except TypeError as error:
        raise UserError(f"{kind} {name} cannot be called with {sorted(given)}: {error}") from error
