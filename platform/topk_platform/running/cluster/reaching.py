"""Reaching a Ray cluster: which one an address means, and whether it answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress

from topk_platform.errors import ClusterError
from topk_platform.running.cluster.address import host_and_port, is_loopback, is_loopback_host
from topk_platform.running.cluster.patience import NotYetError
from topk_platform.running.cluster.versions import version_error
from topk_platform.running.ray_internals import CLUSTER_VARIABLE, known_heads

__all__ = ["check_answers", "check_same", "listening"]

_VARIABLE = "RAY_ADDRESS"
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 20
# The exception is reported, because ray.init's own messages on stderr are many lines.
_PROBE = """
import sys, ray
print(flush=True)
try:
    ray.init(address=sys.argv[1], logging_level=50, log_to_driver=False)
except Exception as error:
    sys.exit(" ".join(str(error).split()))
"""


def listening(address: str) -> str:
    """Return the address of a cluster's head; raise ``NotYetError`` if nothing listens there."""
    address = _resolved(address)
    _check_listens(address)
    return address


def _resolved(address: str) -> str:
    """Return the address; ``auto`` stands for ``RAY_ADDRESS``, or else for the one cluster on this machine."""
    if address != "auto":
        return address
    named = os.environ.get(_VARIABLE) or "auto"
    if named != "auto":  # Ray takes "auto" there too
        _check_named(named)
        return named
    heads = known_heads()
    if len(heads) > 1:  # Ray would use the one that was started last
        raise ClusterError(
            f"--address auto could mean several Rays on this machine: {', '.join(sorted(heads))}. Give --address one "
            f"of them, or set {_VARIABLE}"
        )
    if not heads:
        raise NotYetError(
            f"no Ray cluster answers at {address!r}: none runs on this machine, and {_VARIABLE} names none"
        )
    return heads.pop()


def _check_named(address: str) -> None:
    try:
        host_and_port(address)
    except ClusterError as error:
        raise ClusterError(
            f"{_VARIABLE}, which --address auto takes, must be host:port or auto, got {address!r}"
        ) from error


def check_same(address: str, joined: str) -> None:
    """Raise ``ClusterError`` unless an address is that of the cluster that this process has joined.

    Args:
        address: ``host:port``, or ``auto``, which without ``RAY_ADDRESS`` is the joined cluster.
        joined: The ``host:port`` of the joined cluster.
    """
    named = (os.environ.get(_VARIABLE) or "auto") if address == "auto" else address
    if named == "auto":
        return
    if named != address:
        _check_named(named)
    (host, port), (other, its_port) = host_and_port(named), host_and_port(joined)
    if port != its_port or not _hosts(host) & _hosts(other):
        raise ClusterError(
            f"--address is {named!r}, but this process has already joined the Ray cluster at {joined!r}: leave the "
            "address out to use that one, or call ray.shutdown() first"
        )


def _hosts(name: str) -> set[str]:
    """Return the IP addresses of a host; loopback stands for this machine."""
    names = [name, socket.gethostname()] if is_loopback_host(name) else [name]
    addresses = {name}
    for one in names:
        with suppress(OSError):
            addresses |= {str(info[4][0]) for info in socket.getaddrinfo(one, None)}
    return addresses


def check_answers(address: str) -> None:
    """Raise ``ClusterError`` unless a cluster answers; a separate process asks it, because ``ray.init`` may hang."""
    staying = {CLUSTER_VARIABLE: "0"} if is_loopback(address) else {}
    with subprocess.Popen(  # noqa: S603 - our own interpreter, the address is an argument and no shell is used
        [sys.executable, "-c", _PROBE, address],
        env={**os.environ, **staying},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as probe:
        _check_answer(probe, address)


def _check_answer(probe: subprocess.Popen[str], address: str) -> None:
    assert probe.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
    try:
        probe.stdout.readline()  # on a busy machine the import alone may take as long as the time limit of a cluster
        _, message = probe.communicate(timeout=_ANSWER_SECONDS)
    except subprocess.TimeoutExpired as error:
        hint = " (a cluster with a token needs RAY_AUTH_MODE=token)"
        raise ClusterError(
            f"no Ray cluster answers at {address!r} within {_ANSWER_SECONDS} s"
            + ("" if "RAY_AUTH_MODE" in os.environ else hint)
        ) from error
    finally:
        probe.kill()
    if probe.returncode:
        if mismatch := version_error(message, address):
            raise mismatch
        lines = message.strip().splitlines() or [f"exit code {probe.returncode}"]
        raise ClusterError(f"no Ray cluster answers at {address!r}: {lines[-1]}")


def _check_listens(address: str) -> None:
    try:
        socket.create_connection(host_and_port(address), timeout=_CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as error:
        raise NotYetError(f"no Ray cluster answers at {address!r}: {error}") from error
