"""docs/faults.md names every error that a user can meet, and tells faults and statuses as the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from topk_platform import errors
from topk_platform.specs.trial import Status

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """The cells of each row of the table whose first column is called so, by the name in its first cell."""
    table = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in re.split(r" \| ", line.strip("| "))] for line in table]
    return {cell[0].strip("`"): cell[1:] for cell in cells}


def test_every_error_of_the_users_has_its_remedy() -> None:
    """Wherever in the platform it is defined."""
    sources = "\n".join(path.read_text() for path in (ROOT / "platform" / "topk_platform").rglob("*.py"))
    result, kin = {"UserError"}, 0
    while kin != len(result):  # until no class has one of these for its parent that is not among them
        kin = len(result)
        result |= {
            name for name, parent in re.findall(r"^class (\w+)\((\w+)\)", sources, re.M) if parent in result
        }
    assert set(rows("error")) == result
    assert all(remedy for _, remedy in rows("error").values())


def test_every_fault_is_reported_with_its_own_remedy() -> None:
    listed = rows("fault")
    assert set(listed) == set(errors.FAULTS)
    for name, fault in errors.FAULTS.items():
        assert (listed[name][0], listed[name][2]) == (fault.kind, fault.remedy)


def test_every_status_is_reported() -> None:
    assert set(rows("status")) == set(get_args(Status))
