"""The error for a cluster with another version of Ray or Python than the driver's, and its remedy."""

from __future__ import annotations

import re
from typing import NamedTuple

from topk_platform.errors import ClusterError
from topk_platform.running.machine.requirements import fits, platform_requirements

__all__ = ["OtherVersionError", "Versions", "version_error"]

_MISMATCH = re.compile(
    r"Version mismatch.*?Ray: (\S+)\s+Python: (\S+).*?Ray: (\S+)\s+Python: (\S+)", re.DOTALL
)


class Versions(NamedTuple):
    """The versions that a driver must share with its cluster."""

    ray: str
    python: str

    def __str__(self) -> str:
        return f"Ray {self.ray} with Python {self.python}"


class OtherVersionError(ClusterError):
    """A cluster runs another version of Ray or Python than the driver.

    Args:
        address: The cluster's address.
        cluster: The cluster's versions.
        driver: The driver's versions.

    Attributes:
        problem: Both versions, in one line.
        remedy: What to do, with the command.
    """

    def __init__(self, address: str, cluster: Versions, driver: Versions) -> None:
        self.problem = f"the Ray cluster at {address!r} runs {cluster}, but this driver runs {driver}"
        self.remedy = _remedy(cluster, driver)
        super().__init__(f"{self.problem}: {self.remedy}")


def version_error(message: str, address: str) -> OtherVersionError | None:
    """Return the error for a message of ``ray.init`` that reports other versions; None if it reports something else.

    Example:
        >>> message = "Version mismatch: The cluster was started with: Ray: 2.60.0 Python: 3.11.2 This process on node "
        >>> message += "127.0.0.1 was started with: Ray: 2.61.0 Python: 3.11.2"
        >>> print(version_error(message, "10.0.0.1:6379").remedy)
        run here pip install 'ray[tune]==2.60.0'
    """
    match = _MISMATCH.search(message)
    return match and OtherVersionError(address, Versions(match[1], match[2]), Versions(match[3], match[4]))


def _remedy(cluster: Versions, driver: Versions) -> str:
    supported = platform_requirements().get("ray", "")
    if not fits(cluster.ray, supported):
        return (
            f"this package supports ray{supported}; run on every node of the cluster pip install "
            f"'ray[tune]=={driver.ray}', and start the cluster again"
        )
    install = f"pip install 'ray[tune]=={cluster.ray}'"
    if cluster.python == driver.python:
        return f"run here {install}"
    return (
        f"start the driver in an environment with Python {cluster.python}, and run there {install} "
        "'topk-studies[platform]'"
    )
