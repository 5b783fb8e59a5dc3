"""Addresses of Ray clusters."""

from __future__ import annotations

import ipaddress
import re

from topk_platform.errors import ClusterError

__all__ = ["host_and_port", "is_loopback", "is_loopback_host"]

_ADDRESS = re.compile(r"([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")


def host_and_port(address: str, name: str = "--address") -> tuple[str, int]:
    """Return the host and port of an address.

    Args:
        address: ``host:port``.
        name: Where the address was given, for the error.

    Raises:
        ClusterError: if the address is not ``host:port``.

    Example:
        >>> host_and_port("[::1]:6379")
        ('::1', 6379)
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[2]) > 65535:
        raise ClusterError(
            f"{name} must be host:port (a cluster's own port, as a rule 6379) or auto, got {address!r}"
        )
    return match[1].strip("[]"), int(match[2])


def is_loopback(address: str) -> bool:
    """Return whether an address, ``host:port``, is one that no other machine reaches.

    Example:
        >>> is_loopback("127.0.0.1:6379"), is_loopback("10.0.0.1:6379")
        (True, False)
    """
    return is_loopback_host(host_and_port(address)[0])


def is_loopback_host(host: str) -> bool:
    """Return whether a host, an IP address or a name, is one that no other machine reaches.

    Example:
        >>> is_loopback_host("::1"), is_loopback_host("0.0.0.0")
        (True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
