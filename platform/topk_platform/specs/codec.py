"""Conversion of specs to JSON and back, and hashes: of specs, and of the names of random streams."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["canonical_json", "decode", "digest", "encode", "hashed", "stream_seed"]

_TYPE = "type"


def encode(value: Any, *, defaults: bool = True) -> Any:
    """Return ``value`` as JSON-ready data; dataclasses become objects that carry their class's name.

    Fields that take no part in comparisons are left out.

    Args:
        value: A spec, or what specs hold.
        defaults: Whether fields that have their default are included.

    Raises:
        TypeError: if a part of ``value`` is neither a spec, a mapping, a sequence nor a scalar.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [
            f for f in dataclasses.fields(value) if f.compare and (defaults or not _is_default(value, f))
        ]
        items = {f.name: encode(getattr(value, f.name), defaults=defaults) for f in fields}
        return {_TYPE: type(value).__name__, **items}
    if isinstance(value, Mapping):
        return {str(key): encode(item, defaults=defaults) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item, defaults=defaults) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a spec holds scalars, sequences, mappings and specs only, got {type(value).__name__}")


def _is_default(value: Any, field: dataclasses.Field[Any]) -> bool:
    make = field.default_factory
    default = field.default if make is dataclasses.MISSING else make()
    return bool(getattr(value, field.name) == default)


def decode(data: Any, classes: Iterable[type]) -> Any:
    """Return the value from which ``encode`` made ``data``; sequences come back as tuples.

    Args:
        data: The data from ``json.loads``.
        classes: The dataclasses that may occur in it.

    Raises:
        ValueError: if ``data`` names a class that is not among ``classes``, or a field that the class lacks.
    """
    table = {cls.__name__: cls for cls in classes}
    return _decode(data, table)


def _decode(data: Any, table: Mapping[str, type]) -> Any:
    if isinstance(data, list):
        return tuple(_decode(item, table) for item in data)
    if not isinstance(data, dict):
        return data
    items = {key: _decode(item, table) for key, item in data.items() if key != _TYPE}
    if _TYPE not in data:
        return items
    if data[_TYPE] not in table:
        raise ValueError(f"no spec is called {data[_TYPE]!r}; known are {sorted(table)}")
    try:
        return table[data[_TYPE]](**items)
    except TypeError as error:
        raise ValueError(f"{data[_TYPE]} cannot be made from {sorted(items)}: {error}") from error


def canonical_json(value: Any, *, defaults: bool = True) -> str:
    """Return the one JSON text of ``value``: sorted keys, no blanks, floats as their shortest exact form.

    Args:
        value: As for :func:`encode`.
        defaults: As for :func:`encode`.

    Raises:
        ValueError: if a number in ``value`` is NaN or infinite.

    Example:
        >>> canonical_json({"b": (1, 2.5), "a": None})
        '{"a":null,"b":[1,2.5]}'
    """
    data = encode(value, defaults=defaults)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any, length: int = 20) -> str:
    """Return the first ``length`` hexadecimal digits of the SHA-256 of ``value``'s canonical JSON without defaults.

    So a field that a spec gets later, or loses, changes no hash of a spec that has its default.

    Example:
        >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
        True
    """
    return hashlib.sha256(canonical_json(value, defaults=False).encode()).hexdigest()[:length]


def stream_seed(root: int, seed: int, role: str) -> int:
    """Return the 63-bit seed of one stream.

    Args:
        root: The study's root seed.
        seed: The trial's seed, that of its search or its own; see :class:`~topk_platform.specs.Repeats`.
        role: The purpose of the stream, such as ``"batches"``.

    Example:
        >>> stream_seed(0, 1, "batches") == stream_seed(0, 1, "loss")
        False
    """
    return hashed(root, seed, role)


def hashed(*parts: int | str) -> int:
    """Return a 63-bit number that depends on all parts and on their order."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
