"""The house: who may import whom, and that `platform/` never hides the standard library's module."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLATFORM = ROOT / "platform" / "topk_platform"

# What each part of the platform may import of the others; specs and the small modules at its root are for all.
ALLOWED = {
    "specs": set(),
    "data": set(),
    "models": set(),
    "training": {"data", "models"},
    "search": set(),
    "records": set(),
    "reports": {"records"},
    "running": {"data", "models", "training", "search", "records", "reports"},
    "cli": {"running", "records", "reports", "search"},
    "testing": {"data", "training"},
}
LEAVES = {"errors", "identity", "outcomes", "references", "streams", "metrics", "specs", "code_version"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_parts_import_only_what_they_may(part: str) -> None:
    for path in (PLATFORM / part).rglob("*.py"):
        for name in imported(path):
            pieces = name.split(".")
            if pieces[0] == "topk_platform" and len(pieces) > 1 and (PLATFORM / pieces[1]).is_dir():
                assert pieces[1] in ALLOWED[part] | LEAVES | {part}, f"{path} imports {name}"


def test_every_part_of_the_platform_has_its_rule() -> None:
    folders = {path.name for path in PLATFORM.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders <= set(ALLOWED)


@pytest.mark.parametrize("part", ["training", "data", "models"])
def test_training_knows_neither_ray_nor_mlflow(part: str) -> None:
    for path in (PLATFORM / part).rglob("*.py"):
        tops = {name.split(".")[0] for name in imported(path)}
        assert not tops & {"ray", "mlflow", "optuna", "pyarrow", "duckdb", "pydantic", "typer", "rich"}, path


def test_the_losses_import_nothing_of_the_platform_and_the_platform_no_study() -> None:
    for path in (ROOT / "losses").rglob("*.py"):
        assert not {name.split(".")[0] for name in imported(path)} & {"topk_platform", "topk_studies"}, path
    for path in PLATFORM.rglob("*.py"):
        assert "topk_studies" not in {name.split(".")[0] for name in imported(path)}, path


def test_the_standard_librarys_platform_is_not_hidden() -> None:
    code = "import platform; print(platform.__file__, platform.system())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert str(ROOT) not in done.stdout


def test_no_package_marker_where_it_would_hide_something() -> None:
    for folder in ("platform", "losses", "studies"):
        assert not (ROOT / folder / "__init__.py").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_how_many_examples_a_property_test_tries_is_left_to_the_profile() -> None:
    """Else `make fuzz` would try no more of them than `make test`."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        keywords = {
            node.arg for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.keyword)
        }
        assert not keywords & {"max_examples", "derandomize", "deadline"}, path


def test_defining_a_study_loads_nothing_heavy() -> None:
    code = (
        "import sys, topk_studies; [make() for make in topk_studies.STUDIES.values()];"
        "print(sorted({'torch', 'ray', 'optuna', 'mlflow', 'pyarrow', 'sklearn', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
