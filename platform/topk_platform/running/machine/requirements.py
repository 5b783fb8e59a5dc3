"""The packages that the platform needs, from this package's metadata."""

from __future__ import annotations

import importlib.metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

__all__ = ["fits", "platform_requirements"]

_DISTRIBUTION, _EXTRA = "topk-studies", "platform"


def platform_requirements() -> dict[str, str]:
    """Return the packages that the platform needs, each with the supported versions.

    The result is empty if the package runs from its sources and is not installed.

    Example:
        >>> "torch" in platform_requirements()
        True
    """
    try:
        lines = importlib.metadata.requires(_DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return {}
    requirements = map(Requirement, lines)
    return {
        one.name: str(one.specifier)
        for one in requirements
        if one.marker is None or one.marker.evaluate({"extra": _EXTRA})
    }


def fits(version: str, supported: str) -> bool:
    """Return whether a version is supported.

    Example:
        >>> fits("5.0.1", ">=5.0,<5.1"), fits("2.15.0+cu132", ">=2.10"), fits("4.9", ">=5.0,<5.1")
        (True, True, False)
    """
    return SpecifierSet(supported).contains(version, prereleases=True)
