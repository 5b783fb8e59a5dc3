"""CONTRIBUTING's table of extensions is right: what is added by it, in its files alone, can be used by everybody."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from additions import ADDITIONS, add
from made_studies import small_study

from topk_platform.data import DATASETS
from topk_platform.models import MODELS
from topk_platform.records.storage.backends import OBJECT_STORES
from topk_platform.reports.catalogue import PLOTS, TABLE_FORMATS
from topk_platform.specs import CONDITIONS
from topk_platform.specs.recipe import OPTIMIZERS
from topk_platform.specs.search_rules import PRUNERS, SAMPLERS
from topk_platform.versions import version_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
PATH = re.compile(r"`([\w./]+\.(?:py|md))`")


def rows() -> dict[str, list[str]]:
    """The cells behind each kind of extension."""
    lines = re.findall(r"^\| (.*) \|$", PAGE.partition("## Where things go")[2], flags=re.MULTILINE)
    cells = [line.split(" | ") for line in lines if not line.startswith(("new ", "---"))]
    return {kind: others for kind, *others in cells}


def test_the_table_names_files_that_exist() -> None:
    assert rows().keys() >= ADDITIONS.keys()
    files = PATH.findall(" ".join(cell for cells in rows().values() for cell in cells))
    assert not [file for file in files if "NAME" not in file and not (ROOT / file).is_file()]


@pytest.mark.parametrize("kind", sorted(ADDITIONS.keys() - {"loss"}))
def test_an_extension_is_written_in_the_files_of_its_row(kind: str) -> None:
    listed = PATH.findall(" ".join(rows()[kind][:-1]))
    new = [file for file in ADDITIONS[kind] if not (ROOT / file).exists()]
    pattern = [file.replace("NAME", Path(new[0]).stem) if new else file for file in listed]
    assert set(ADDITIONS[kind]) == set(pattern)


def test_the_list_of_a_new_losss_files_names_files_that_exist() -> None:
    text = PAGE.partition("## The files of a new loss")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d\. .*?(?=^\d\. |^Tests)", text, flags=re.MULTILINE | re.DOTALL)
    assert len(steps) == 8
    paths = [path for path in PATH.findall(text) if path == path.lower()]
    assert not [path for path in paths if not (ROOT / path).is_file()]
    for step, file in zip((1, 2, 5, 6), ADDITIONS["loss"], strict=True):
        assert str(Path(file).parent) in steps[step - 1]


@pytest.fixture(scope="module")
def usable(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The kinds whose extension was added to a copy of the repository and used there; then an arm's code version."""
    copy = tmp_path_factory.mktemp("copy")
    for part in ("losses", "platform", "docs"):
        ignored = shutil.ignore_patterns(
            "__pycache__", "letters.npz", "kanji.npz", "*.png", "*.ipynb", "_build"
        )
        shutil.copytree(ROOT / part, copy / part, ignore=ignored)
    for kind in ADDITIONS:
        add(kind, copy)
    paths = os.pathsep.join(str(copy / part) for part in ("losses", "platform"))
    script = ROOT / "tests" / "harness" / "use_additions.py"
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=copy,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(ADDITIONS))
def test_an_extension_that_is_added_by_its_row_can_be_used(kind: str, usable: list[str]) -> None:
    assert kind.replace(" ", "_") in usable


@pytest.mark.slow
def test_no_extension_starts_an_arm_anew_that_does_not_use_it(usable: list[str]) -> None:
    assert usable[-1] == version_of(small_study(k=1).arms[0])


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("dataset", DATASETS),
        ("condition", [condition.__name__ for condition in CONDITIONS]),
        ("model", MODELS),
        ("optimizer", OPTIMIZERS),
        ("sampler", [sampler.__name__ for sampler in SAMPLERS]),
        ("pruner", [pruner.__name__ for pruner in PRUNERS]),
        ("object store", OBJECT_STORES),
        ("table format", TABLE_FORMATS),
        ("plot", PLOTS),
    ],
)
def test_the_page_of_a_catalogue_names_every_entry(kind: str, names: Iterable[str]) -> None:
    (page,) = [file for file in PATH.findall(" ".join(rows()[kind])) if file.startswith("docs/")]
    text = (ROOT / page).read_text()
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)]
