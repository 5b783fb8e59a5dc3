"""Ray's own lines in the driver: on stderr, so that stdout is the command's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ray._private import worker

__all__ = ["messages_on_stderr"]


@contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Let what Ray tells its driver go to stderr for as long as the block lasts.

    Ray prints what it publishes of lost processes and the like on stdout, whatever ``log_to_driver`` says, amid tables
    and lines of JSON.
    """
    before = worker.print_to_stdstream

    def to_stderr(data: Mapping[str, Any], ignore_prefix: bool) -> None:
        before({**data, "is_err": True}, ignore_prefix)

    worker.print_to_stdstream = to_stderr
    try:
        yield
    finally:
        worker.print_to_stdstream = before
