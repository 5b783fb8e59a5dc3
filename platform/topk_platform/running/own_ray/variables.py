"""Environment variables that are set only for the length of a block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["in_variables"]


@contextmanager
def in_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the block lasts; variables that are already set stay as they are."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)
