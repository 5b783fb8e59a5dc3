"""The constraints of ``make versions`` are the lower bounds that pyproject.toml names, and fit its ranges."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def test_every_requirement_of_users_is_held_at_a_version_in_its_range() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "lowest_versions.py"], capture_output=True, text=True, check=True
    )
    lowest = dict(line.split("==") for line in done.stdout.splitlines())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["platform"]
    ranges = {r.name: r.specifier for r in map(Requirement, lines) if r.name != project["name"]}
    assert ranges.keys() <= lowest.keys()
    assert all(specifier.contains(lowest[name]) for name, specifier in ranges.items())
