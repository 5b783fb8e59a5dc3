"""Random damage to any file of a store: the same tables, or one line that names the file; after a repair all works.

``BREAK_CASES`` and ``BREAK_SEED`` say how many cases are tried and from which seed on; a case is repeated by its seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from damage import Case, check_case, copied, make_store, reference
from in_process import Said

SEED = int(os.environ.get("BREAK_SEED", "29"))
CASES = int(os.environ.get("BREAK_CASES", "6"))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Said]]:
    """A sound store, and what the commands say of it."""
    folder = tmp_path_factory.mktemp("whole") / "runs"
    make_store(folder)
    said = reference(folder)
    assert all(answer.code == 0 for answer in said.values()), said
    return folder, said


@pytest.mark.slow
@pytest.mark.breaks
@pytest.mark.timeout(300)  # after which a command hangs
@pytest.mark.parametrize("seed", range(SEED, SEED + CASES))
def test_damage_is_named_or_changes_nothing(
    seed: int, whole: tuple[Path, dict[str, Said]], tmp_path: Path
) -> None:
    assert check_case(Case(seed), copied(whole[0], tmp_path / "runs"), whole[1]) == []
