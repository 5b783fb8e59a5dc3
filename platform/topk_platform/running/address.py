"""How a Ray cluster is named."""

from __future__ import annotations

import re

from topk_platform.errors import ClusterError

__all__ = ["host_and_port"]

_ADDRESS = re.compile(r"([^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")


def host_and_port(address: str) -> tuple[str, int]:
    """Return where a cluster's own port is.

    Raises:
        ClusterError: if the address is not ``host:port``.

    Example:
        >>> host_and_port("[::1]:6379")
        ('::1', 6379)
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[2]) > 65535:
        raise ClusterError(
            f"--address must be host:port (a cluster's own port, as a rule 6379) or auto, got {address!r}"
        )
    return match[1].strip("[]"), int(match[2])
