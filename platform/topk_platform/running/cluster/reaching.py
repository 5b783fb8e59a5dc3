"""Reaching a Ray cluster: its address, waiting until it has started, and whether it answers."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from topk_platform.errors import ClusterError
from topk_platform.running.cluster.ray_internals import known_heads

__all__ = ["NotYetError", "Patience", "check_answers", "host_and_port", "is_loopback", "listening"]

_VARIABLE = "RAY_ADDRESS"
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 60.0  # with the import of Ray, which takes many seconds on a busy machine
# The exception is reported, because ray.init's own messages on stderr are many lines.
_PROBE = """
import sys, ray
try:
    ray.init(address=sys.argv[1], logging_level=50, log_to_driver=False)
except Exception as error:
    sys.exit(" ".join(str(error).split()))
"""
_ADDRESS = re.compile(r"([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")
T = TypeVar("T")

_COMING_SECONDS = 60.0  # how long a head or a node is waited for by default
_PAUSE = 1.0


def listening(address: str) -> str:
    """Return the address of a cluster's head; raise ``NotYetError`` if nothing listens there.

    ``auto`` stands for ``RAY_ADDRESS``, which may be "auto" too, or else for the one cluster on this machine.
    """
    given = os.environ.get(_VARIABLE) or "auto" if address == "auto" else address
    if given == "auto":
        heads = known_heads()
        if len(heads) > 1:  # Ray would use the one that was started last
            raise ClusterError(f"--address auto could mean {' or '.join(sorted(heads))}: give one of them")
        if not heads:
            raise NotYetError(f"no Ray cluster answers at 'auto': none runs here, and {_VARIABLE} names none")
        given = heads.pop()
    try:
        socket.create_connection(host_and_port(given), timeout=_CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as error:
        raise NotYetError(f"no Ray cluster answers at {given!r}: {error}") from error
    return given


def check_answers(address: str) -> None:
    """Raise ``ClusterError`` unless a cluster answers; a separate process asks it, because ``ray.init`` may hang."""
    try:
        command = [sys.executable, "-c", _PROBE, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        hint = "" if "RAY_AUTH_MODE" in os.environ else " (a cluster with a token needs RAY_AUTH_MODE=token)"
        raise ClusterError(
            f"no Ray cluster answers at {address!r} within {_ANSWER_SECONDS:g} s{hint}"
        ) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ClusterError(f"the Ray cluster at {address!r} cannot be used: {last}")


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and port of an address, ``host:port``.

    Raises:
        ClusterError: if the address is not ``host:port``.

    Example:
        >>> host_and_port("[::1]:6379")
        ('::1', 6379)
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[2]) > 65535:
        raise ClusterError(
            f"--address must be host:port (a cluster's own port, as a rule 6379) or auto, which takes {_VARIABLE}, "
            f"got {address!r}"
        )
    return match[1].strip("[]"), int(match[2])


def is_loopback(host: str) -> bool:
    """Return whether a host is one that no other machine reaches.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("10.0.0.1")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


class NotYetError(ClusterError):
    """Something that the cluster lacks now and may still get."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a cluster that is starting.

    Args:
        seconds: The longest wait that the user gave for each answer or node; None for the defaults of :meth:`until`.
        say: Called with a line for each new reason to wait, and with other lines about the preparation of a run.

    Example:
        >>> patience, answers = Patience(say=print), [NotYetError("no head"), 8]
        >>> def ask():
        ...     if isinstance(answer := answers.pop(0), Exception):
        ...         raise answer
        ...     return answer
        >>> patience.until(ask)
        no head; waiting for up to 60 s, see --wait
        8
    """

    seconds: float | None = None
    say: Callable[[str], object] = lambda _line: None

    def until(self, ask: Callable[[], T], otherwise: float = _COMING_SECONDS) -> T:
        """Return what ``ask`` returns as soon as it raises no ``NotYetError``.

        Args:
            ask: Called once a second.
            otherwise: The longest wait in seconds if the user gave none.

        Raises:
            ClusterError: in one line, once the time has passed; other errors of ``ask`` at once.
        """
        seconds = otherwise if self.seconds is None else self.seconds
        end, last = time.monotonic() + seconds, ""
        while True:
            try:
                return ask()
            except NotYetError as error:
                if time.monotonic() >= end:
                    waited = f" (waited {seconds:g} s; longer with --wait)" if seconds else ""
                    raise ClusterError(f"{error}{waited}") from error
                if str(error) != last:
                    last = str(error)
                    self.say(f"{last}; waiting for up to {seconds:g} s, see --wait")
            time.sleep(_PAUSE)
