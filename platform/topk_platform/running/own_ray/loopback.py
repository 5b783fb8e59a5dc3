"""What a Ray is told by the environment, and that it stays on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ray._private import ray_constants

__all__ = ["in_variables", "on_loopback"]


@contextmanager
def in_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the block lasts; those that are set already stay as they are."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: os.environ.get(name, value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def on_loopback() -> Iterator[None]:
    """Let a Ray that starts meanwhile listen on loopback alone, as Ray does by itself where it knows no clusters.

    Elsewhere it replaces a loopback address that it is given by one that others reach, and listens everywhere. The
    variable that says otherwise is read when Ray is imported, which the caller may have done before.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
