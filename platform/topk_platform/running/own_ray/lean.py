"""A Ray of this machine alone without the processes that serve people and larger clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray._private.node import Node

__all__ = ["lean"]

# What scales a cluster up and down; what carries workers' output to a driver that wants none; what serves a dashboard,
# which starts even where no dashboard is to be. Nobody asks them for anything, and each imports Ray.
_NEEDLESS = ("start_monitor", "start_log_monitor", "start_api_server")


@contextmanager
def lean() -> Iterator[None]:
    """Let a Ray that starts meanwhile start without them: two to three seconds of a core less at every start."""
    before = {name: getattr(Node, name) for name in _NEEDLESS}
    for name in _NEEDLESS:
        setattr(Node, name, _nothing)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(Node, name, method)


def _nothing(_node: Node, **_options: Any) -> None:
    """Start nothing."""
