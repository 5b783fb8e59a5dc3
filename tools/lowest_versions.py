"""Print the lowest versions that pyproject.toml allows, as constraints for pip: ``make versions`` installs them."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["lowest"]

_PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_EXTRAS = ("fast", "platform", "onnx")  # those that users install
_BOUND = re.compile(r"(?P<name>[\w.-]+)(\[[\w,]+\])?>=(?P<lowest>[\w.]+)")


def lowest(requirements: Iterable[str]) -> Iterator[str]:
    """Yield a constraint for each requirement that has a lower bound.

    Args:
        requirements: As in ``pyproject.toml``, the lower bound first.

    Example:
        >>> list(lowest(["torch>=2.10", "ray[tune]>=2.44,<3", "topk-studies[fast]"]))
        ['torch==2.10', 'ray==2.44']
    """
    for requirement in requirements:
        if bound := _BOUND.match(requirement):
            yield f"{bound['name']}=={bound['lowest']}"


def _requirements() -> list[str]:
    project = tomllib.loads(_PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in _EXTRAS for line in extras[extra])]


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lowest(_requirements()))
