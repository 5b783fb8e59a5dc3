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
    for name, field, copy, check in _parts(kind):
        value = getattr(spec, name)
        if copy is not None and (copied := copy(value)) is not value:
            object.__setattr__(spec, name, copied)
            value = copied
        check(field, value, "")


_Copy = Callable[[Any], Any]
_Check = Callable[[str, Any, str], None]


@cache
def _parts(kind: type) -> tuple[tuple[str, str, _Copy | None, _Check], ...]:
    """Return each field's name, its name in errors, and the functions that copy and check it, made once for a class."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (item.name, f"{kind.__name__}.{item.name}", _copier(hints[item.name]), _checker(hints[item.name]))
        for item in fields(kind)
    )


def _copier(annotation: Any) -> _Copy | None:
    """Return the function that copies a value of this annotation; None if there is nothing to copy."""
    if get_origin(annotation) is Mapping:
        item = _copier(get_args(annotation)[1]) or (lambda value: value)
        return lambda value: {n: item(v) for n, v in value.items()} if isinstance(value, Mapping) else value
    return _as_tuple if get_origin(annotation) in (tuple, Sequence) else None


def _as_tuple(value: Any) -> Any:
    if isinstance(value, (tuple, str, Mapping, set, frozenset)) or not isinstance(value, Iterable):
        return value
    return tuple(value)


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
            _checker(annotation)(name, value, "")
        except UserError as error:
            remedy = annotation.remedy_for(value) if hasattr(annotation, "remedy_for") else ""
            raise UserError(f"{error}{remedy}") from error


@cache
def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    # The return type is left out, because it may be imported only for type checkers.
    given = SimpleNamespace(
        __annotations__={n: a for n, a in function.__annotations__.items() if n != "return"}
    )
    return get_type_hints(given, function.__globals__, include_extras=True)


@cache
def _checker(annotation: Any) -> _Check:
    """Return the function that raises ``UserError`` for a field's value that does not fit an annotation.

    Annotations are looked into once, because a large study has millions of values. The function's last argument is
    what is allowed besides, such as " or None".
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return lambda _field, _value, _also: None
    if origin is Annotated:
        return _with_rules(_checker(parts[0]), parts[1:])
    if origin in (Union, UnionType):
        return _of_union(annotation, parts)
    return _of_type(annotation, origin, parts)


def _with_rules(plain: _Check, rules: Sequence[Rule]) -> _Check:
    def check(field: str, value: Any, also: str) -> None:
        plain(field, value, "")
        for rule in rules:
            if not rule.holds(value):
                raise UserError(f"{field} must be {rule.text}{also}, got {value!r}")

    return check


def _of_union(annotation: Any, members: Sequence[Any]) -> _Check:
    """Check a value against the range of the first member of a union that has its type."""
    plain = [get_args(member)[0] if get_origin(member) is Annotated else member for member in members]
    known = [
        (get_origin(kind) or kind, _checker(member)) for kind, member in zip(plain, members, strict=True)
    ]
    also = " or None" if NoneType in members else ""

    def check(field: str, value: Any, _also: str) -> None:
        for kind, inner in known:
            if _fits(value, kind):
                inner(field, value, also)
                return
        raise UserError(f"{field} must be {_described(annotation)}, got {_shown(value)}")

    return check


def _of_type(annotation: Any, origin: Any, parts: Sequence[Any]) -> _Check:
    kind = origin or annotation
    items = [_checker(part) for part in parts] if origin in (tuple, Sequence, Mapping) else []

    def check(field: str, value: Any, _also: str) -> None:
        if not _fits(value, kind):
            comma = _comma(value, items[0]) if origin in (tuple, Sequence) else ""
            raise UserError(f"{field} must be {_described(annotation)}, got {_shown(value)}{comma}")
        if origin is Mapping:
            for key, item in value.items():
                items[0](f"the name {key!r} in {field}", key, "")
                items[1](f"{field}[{key!r}]", item, "")
        elif items:
            for number, item in enumerate(value):
                items[0](f"{field}[{number}]", item, "")

    return check


def _comma(value: Any, item: _Check) -> str:
    """Return the remedy for a single item in place of a sequence of one, whose comma is easily forgotten."""
    try:
        item("", value, "")
    except UserError:
        return ""
    return f": a sequence of one has a comma, ({_shown(value)},)"


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
