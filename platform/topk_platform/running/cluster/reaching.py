"""Reaching a Ray cluster: which one an address means, and whether it answers."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

from topk_platform.errors import ClusterError
from topk_platform.running.cluster.address import host_and_port, is_loopback
from topk_platform.running.cluster.patience import NotYetError
from topk_platform.running.ray_internals import CLUSTER_VARIABLE, known_heads

__all__ = ["check_answers", "check_same", "listening", "mismatch"]

_VARIABLE = "RAY_ADDRESS"
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 20
# The time of an answer begins after the import, which alone may take as long on a busy machine. The exception is
# reported, because ray.init's own messages on stderr are many lines.
_PROBE = """
import signal, sys, ray
signal.alarm(int(sys.argv[2]))
try:
    ray.init(address=sys.argv[1], logging_level=50, log_to_driver=False)
except Exception as error:
    sys.exit(" ".join(str(error).split()))
signal.alarm(0)
"""
_MISMATCH = re.compile(
    r"Version mismatch.*?Ray: (\S+)\s+Python: (\S+).*?Ray: (\S+)\s+Python: (\S+)", re.DOTALL
)


def listening(address: str) -> str:
    """Return the address of a cluster's head; raise ``NotYetError`` if nothing listens there.

    ``auto`` stands for ``RAY_ADDRESS``, which may be "auto" too, or else for the one cluster on this machine.
    """
    given = os.environ.get(_VARIABLE) or "auto" if address == "auto" else address
    if given == "auto":
        heads = known_heads()
        if len(heads) > 1:  # Ray would use the one that was started last
            raise ClusterError(
                f"--address auto could mean several Rays on this machine: {', '.join(sorted(heads))}. Give --address "
                f"one of them, or set {_VARIABLE}"
            )
        if not heads:
            none = f"none runs on this machine, and {_VARIABLE} names none"
            raise NotYetError(f"no Ray cluster answers at {address!r}: {none}")
        given = heads.pop()
    host = host_and_port(
        given, "--address" if given == address else f"{_VARIABLE}, which --address auto takes,"
    )
    try:
        socket.create_connection(host, timeout=_CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as error:
        raise NotYetError(f"no Ray cluster answers at {given!r}: {error}") from error
    return given


def check_same(address: str | None, joined: str) -> None:
    """Raise ``ClusterError`` if an address is given that is not the one of the cluster that this process has joined.

    Args:
        address: ``host:port``; ``auto`` or None for the joined cluster.
        joined: The ``host:port`` of the joined cluster.
    """
    if address not in (None, "auto", joined):
        raise ClusterError(
            f"--address is {address!r}, but this process has already joined the Ray cluster at {joined!r}: leave the "
            "address out to use that one, or call ray.shutdown() first"
        )


def check_answers(address: str) -> None:
    """Raise ``ClusterError`` unless a cluster answers; a separate process asks it, because ``ray.init`` may hang."""
    staying = {CLUSTER_VARIABLE: "0"} if is_loopback(address) else {}
    done = subprocess.run(  # noqa: S603 - our own interpreter, the address is an argument and no shell is used
        [sys.executable, "-c", _PROBE, address, str(_ANSWER_SECONDS)],
        env={**os.environ, **staying},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == -signal.SIGALRM:
        hint = "" if "RAY_AUTH_MODE" in os.environ else " (a cluster with a token needs RAY_AUTH_MODE=token)"
        raise ClusterError(f"no Ray cluster answers at {address!r} within {_ANSWER_SECONDS} s{hint}")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ClusterError(mismatch(done.stderr, address) or f"no Ray cluster answers at {address!r}: {last}")


def mismatch(message: str, address: str) -> str:
    """Return what to do if a message of ``ray.init`` reports other versions; empty if it reports something else.

    Example:
        >>> message = "Version mismatch: The cluster was started with: Ray: 2.60.0 Python: 3.11.2 This process on node "
        >>> message += "127.0.0.1 was started with: Ray: 2.61.0 Python: 3.11.2"
        >>> "pip install 'ray[tune]==2.60.0'" in mismatch(message, "10.0.0.1:6379")
        True
    """
    if (match := _MISMATCH.search(message)) is None:
        return ""
    theirs, its_python, ours, python = match.groups()
    return (
        f"the Ray cluster at {address!r} runs Ray {theirs} with Python {its_python}, but this driver runs Ray {ours} "
        f"with Python {python}: start the driver in an environment with Python {its_python} and pip install "
        f"'ray[tune]=={theirs}' 'topk-studies[platform]'; if this package does not support that Ray, start the cluster "
        "with the driver's versions"
    )
