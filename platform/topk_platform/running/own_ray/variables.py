"""Environment variables that are set only for the length of a block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["in_variables"]


@contextmanager
def in_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the block lasts; variables that are already set stay as they are."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: value for name, value in variables.items() if name not in os.environ})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
