"""Checks of specs' fields against their annotations: the types, and the ranges that ``Annotated`` adds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from topk_platform.errors import UserError

__all__ = [
    "Below1",
    "Checked",
    "Count",
    "Inside",
    "NonNegative",
    "Part",
    "Positive",
    "Rule",
    "Several",
    "Share",
    "Whole",
    "check_call",
    "check_fields",
    "one_of",
]


_LONGEST = 100  # the most letters of a value in an error


@dataclass(frozen=True)
class Rule:
    """A rule for a value, besides its type.

    Args:
        text: The rule, to follow "must be".
        holds: A function that returns whether a value of the right type satisfies the rule.
    """

    text: str
    holds: Callable[[Any], bool]


def one_of(*options: str) -> Rule:
    """Return the rule that a value is one of these options."""
    return Rule(f"one of {list(options)}", options.__contains__)


_AT_LEAST_0 = Rule("at least 0", lambda value: value >= 0)

Count = Annotated[int, Rule("at least 1", lambda value: value >= 1)]
Whole = Annotated[int, _AT_LEAST_0]
NonNegative = Annotated[float, _AT_LEAST_0]
Positive = Annotated[float, Rule("above 0", lambda value: value > 0)]
Several = Annotated[int, Rule("at least 2", lambda value: value >= 2)]
Share = Annotated[float, Rule("in [0, 1]", lambda value: 0 <= value <= 1)]
Below1 = Annotated[float, Rule("in [0, 1)", lambda value: 0 <= value < 1)]
Inside = Annotated[float, Rule("in (0, 1)", lambda value: 0 < value < 1)]
Part = Annotated[float, Rule("in (0, 1]", lambda value: 0 < value <= 1)]


def check_fields(spec: Any) -> None:
    """Check a frozen dataclass against its annotations; sequences become tuples, and mappings copies.

    So the spec does not change if the caller changes a list or a dictionary later. Sets are refused, because their
    order may differ in every process. Whole numbers given for real ones stay whole, because another type gives another
    hash.

    Raises:
        UserError: if a value has the wrong type or breaks a rule, naming the field, the rule and the value.

    Example:
        >>> @dataclass(frozen=True)
        ... class Trip:
        ...     days: Count
        >>> check_fields(Trip(2))
        >>> check_fields(Trip(2.5))
        Traceback (most recent call last):
        topk_platform.errors.UserError: Trip.days must be a whole number, got 2.5
    """
    kind: Any = type(spec)
    for name, annotation in _annotations(kind).items():
        value = getattr(spec, name)
        copied = _copied(value, annotation)
        if copied is not value:
            object.__setattr__(spec, name, copied)
        _check(f"{kind.__name__}.{name}", copied, annotation)


def _copied(value: Any, annotation: Any) -> Any:
    if get_origin(annotation) is Mapping:
        item = get_args(annotation)[1]
        return {n: _copied(v, item) for n, v in value.items()} if isinstance(value, Mapping) else value
    ordered = isinstance(value, Iterable) and not isinstance(value, (str, Mapping, set, frozenset))
    return tuple(value) if _is_sequence(annotation) and ordered else value


class Checked:
    """A spec whose fields are checked against their annotations when it is made."""

    def __post_init__(self) -> None:
        check_fields(self)


def check_call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check the arguments of a function against its annotations, as :func:`check_fields` does a spec's fields.

    Args:
        function: The function.
        arguments: Its arguments by name: ``locals()`` in its first line.

    Raises:
        UserError: if a value has the wrong type or breaks a rule, naming the argument, the rule and the value.

    Example:
        >>> def wait(hours: float, quietly: bool = False) -> None:
        ...     check_call(wait, locals())
        >>> wait("2")
        Traceback (most recent call last):
        topk_platform.errors.UserError: hours must be a finite number, got '2'
    """
    for name, annotation in _parameters(function).items():
        value = arguments[name]
        try:
            _check(name, value, annotation)
        except UserError as error:
            raise UserError(f"{error}{getattr(annotation, 'remedy_for', _no_remedy)(value)}") from error


def _no_remedy(_value: Any) -> str:
    return ""


@cache
def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    # The return type is left out, because it may be imported only for type checkers.
    given = SimpleNamespace(
        __annotations__={n: a for n, a in function.__annotations__.items() if n != "return"}
    )
    return get_type_hints(given, function.__globals__, include_extras=True)


@cache
def _annotations(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def _check(field: str, value: Any, annotation: Any, also: str = "") -> None:
    # `check(...)` would build a message for each of thousands of fields, even if no rule is broken.
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        _check(field, value, parts[0])
        for rule in parts[1:]:
            if not rule.holds(value):
                raise UserError(f"{field} must be {rule.text}{also}, got {value!r}")
    elif origin in (Union, UnionType):
        _check_union(field, value, annotation)
    else:
        if not _fits(value, origin or annotation):
            raise UserError(f"{field} must be {_described(annotation)}, got {_shown(value)}")
        if origin in (tuple, Sequence):
            for number, item in enumerate(value):
                _check(f"{field}[{number}]", item, parts[0])
        elif origin is Mapping:
            for key, item in value.items():
                _check(f"the name {key!r} in {field}", key, parts[0])
                _check(f"{field}[{key!r}]", item, parts[1])


def _check_union(field: str, value: Any, annotation: Any) -> None:
    """Check a value against the range of the first member of a union that has its type."""
    for member in get_args(annotation):
        plain = get_args(member)[0] if get_origin(member) is Annotated else member
        if _fits(value, get_origin(plain) or plain):
            also = " or None" if NoneType in get_args(annotation) else ""
            _check(field, value, member, also)
            return
    raise UserError(f"{field} must be {_described(annotation)}, got {_shown(value)}")


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a plain type. An int also counts as a float; a bool counts as neither."""
    if kind is float:
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        return real and abs(value) <= sys.float_info.max  # also false for NaN
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str)
    return isinstance(value, kind)


def _shown(value: Any) -> str:
    """Return a value on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _is_sequence(annotation: Any) -> bool:
    return get_origin(annotation) in (tuple, Sequence)


_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a finite number",
    str: "a string",
    NoneType: "None",
    Path: "a path",
}


def _described(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return " ".join((_described(parts[0]), *(rule.text for rule in parts[1:])))
    if origin in (Union, UnionType):
        return " or ".join(map(_described, parts))
    if origin in (tuple, Sequence):
        return f"a sequence, each {_described(parts[0])}"
    if origin is Mapping:
        return "a mapping"
    if origin is Callable:
        return "a function"
    return (
        _WORDS.get(annotation) or f"{'an' if annotation.__name__[0] in 'AEIO' else 'a'} {annotation.__name__}"
    )
