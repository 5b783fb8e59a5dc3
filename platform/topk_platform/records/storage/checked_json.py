"""JSON files that hold the SHA-256 of their own content, so that damage is noticed when they are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from topk_platform.errors import StoreError
from topk_platform.records.storage.store import Store

__all__ = ["DamagedError", "damaged", "read_checked", "with_checksum", "without_checksum"]

_T = TypeVar("_T")

_SUM = "sha256"


class DamagedError(StoreError):
    """A file of a study is damaged or missing; the message names it and the remedy.

    Args:
        message: The message.
        name: The file's name in the study's folder.
    """

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


def with_checksum(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file with some content and its checksum.

    Args:
        content: Values that JSON can hold, without a key ``"sha256"``.

    Example:
        >>> without_checksum(with_checksum({"study": "digits"}))
        {'study': 'digits'}
    """
    return json.dumps({**content, _SUM: _sum(content)}, indent=1).encode()


def without_checksum(data: bytes) -> dict[str, Any]:
    """Return the content of a JSON file after comparing it with its checksum.

    Raises:
        ValueError: if the file is not a JSON object, or the content does not have its checksum.

    Example:
        >>> without_checksum(with_checksum({"study": "digits"}).replace(b"digits", b"digitS"))
        Traceback (most recent call last):
        ValueError: the content does not have its checksum
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("the content is not a JSON object")
    if content.pop(_SUM, None) != _sum(content):
        raise ValueError("the content does not have its checksum")
    return content


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_checked(store: Store, name: str, remedy: str, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
    """Return the parsed content of a JSON file in a store; None if the file does not exist.

    Args:
        store: The study's folder.
        name: The file's name in it.
        remedy: What to do about a damaged file, for the message.
        parse: Returns the result of the content. Its errors mean that the file is damaged.

    Raises:
        DamagedError: if it is damaged; the message has its name and the remedy.
        StoreError: if it cannot be read.
    """
    try:
        return parse(without_checksum(store.read(name)))
    except FileNotFoundError:
        return None
    except StoreError:  # it is a ValueError too, but does not mean that the content is damaged
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise damaged(store, name, remedy) from error


def damaged(store: Store, name: str, remedy: str, how: str = "damaged") -> DamagedError:
    """Return the error for a damaged file.

    Args:
        store: The study's folder.
        name: The file's name in it.
        remedy: What to do about it.
        how: What is wrong with it.
    """
    return DamagedError(f"store {store.uri!r}: {name} is {how}; {remedy}", name)
