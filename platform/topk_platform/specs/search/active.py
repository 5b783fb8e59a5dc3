"""Dimensions that are active only where other dimensions have certain values."""

from __future__ import annotations

from collections.abc import Mapping

from topk_platform.errors import UserError, unknown_name
from topk_platform.specs.checks import check
from topk_platform.specs.search.space import Dimension, Float, Scalar

__all__ = ["active", "active_names", "check_conditions", "in_order", "is_active", "reaching"]


def in_order(space: Mapping[str, Dimension]) -> tuple[str, ...]:
    """Return a space's names in order, but each one after the names in its ``when``.

    Raises:
        UserError: if conditions form a circle.

    Example:
        >>> from topk_platform.specs import Choice, Float
        >>> in_order({"epsilon": Float(0, 1, when={"samples": (1,)}), "samples": Choice((None, 1))})
        ('samples', 'epsilon')
    """
    placed: dict[str, None] = {}
    while len(placed) < len(space):
        ready = (name for name in space if name not in placed and space[name].when.keys() <= placed.keys())
        following = next(ready, None)
        if following is None:
            circle = [name for name in space if name not in placed]
            raise UserError(f"the conditions of {circle} form a circle: each `when` needs another")
        placed[following] = None
    return tuple(placed)


def is_active(dimension: Dimension, values: Mapping[str, Scalar]) -> bool:
    """Return whether a dimension is active, given the values of the others."""
    return all(name in values and values[name] in allowed for name, allowed in dimension.when.items())


def active_names(space: Mapping[str, Dimension], values: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return the names of the dimensions that are active with these values, in the space's order."""
    known: dict[str, Scalar] = {}
    names = []
    for name in in_order(space):
        if is_active(space[name], known):
            names.append(name)
            known |= {name: values[name]} if name in values else {}
    return tuple(names)


def active(space: Mapping[str, Dimension], values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return only the values of active dimensions, in the space's order.

    Example:
        >>> from topk_platform.specs import Choice, Float
        >>> space = {"samples": Choice((None, 1)), "epsilon": Float(0, 1, when={"samples": (1,)})}
        >>> active(space, {"samples": None, "epsilon": 0.5})
        {'samples': None}
    """
    names = active_names(space, values)
    return {name: values[name] for name in space if name in names and name in values}


def reaching(
    space: Mapping[str, Dimension], values: Mapping[str, Scalar], name: str, value: Scalar
) -> dict[str, Scalar]:
    """Return values with which one dimension is active and has a certain value; the others are kept where possible.

    Args:
        space: The space.
        values: One value for each dimension that is active with them.
        name: The dimension.
        value: The value that it must have.
    """
    required: dict[str, Scalar] = {name: value}
    for other in reversed(in_order(space)):
        for parent, options in space[other].when.items() if other in required else ():
            there = {**values, **required}
            required[parent] = there[parent] if parent in there and there[parent] in options else options[0]
    ends = {other: dimension.ends[0] for other, dimension in space.items()}
    return active(space, {**ends, **values, **required})


def check_conditions(label: str, space: Mapping[str, Dimension]) -> None:
    """Raise ``UserError`` if a ``when`` names an unknown dimension or value, or if conditions form a circle."""
    for name, dimension in space.items():
        for other, allowed in dimension.when.items():
            condition = f"loss {label}: when of {name!r}"
            if other not in space:
                raise unknown_name(f"dimension in {condition}", other, space)
            check(bool(allowed), f"{condition} must list at least one value of {other!r}, got none")
            check(
                not isinstance(space[other], Float),
                f"{condition} must list values of a Choice or an Int, got {other!r}, a Float, which hardly ever "
                "has one of a few values",
            )
            never = [value for value in allowed if not space[other].holds(value)]
            check(not never, f"{condition} lists {never} of {other!r}, which {space[other]} lacks")
    in_order(space)
