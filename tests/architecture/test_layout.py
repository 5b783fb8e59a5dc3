"""The house: who may import whom, and that `platform/` never hides the standard library's module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLATFORM = ROOT / "platform" / "topk_platform"
LOSSES = ROOT / "losses" / "topk_losses"

# What each part of the platform may import of the others; specs and the small modules at its root are for all.
ALLOWED = {
    "specs": set(),
    "data": set(),
    "models": set(),
    "training": {"data", "models"},
    "protocol": set(),
    "records": {"protocol"},  # what is recorded of an arm becomes its state
    "results": {"records", "protocol"},  # values of a study
    "reports": {"results", "records", "protocol", "data"},  # a plot shows test images
    "running": {"data", "models", "training", "protocol", "records", "results", "reports", "tracking"},
    "tracking": {"records"},  # MLflow is filled from the ledger alone
    # networks at work, with their numbers
    "serving": {"data", "models", "training", "records", "results"},
    # arrays of a user's own are looked at by the code that trains on them, and networks are named
    "cli": {
        *("data", "models", "running", "records", "results", "reports", "protocol", "serving"),
        "tracking",
    },
    # contracts of regimes and samplers; a fake run leaves the records of a real one
    "testing": {"data", "training", "protocol", "records"},
}
LEAVES = {
    *("errors", "identity", "references", "metrics", "specs", "versions", "user_code"),
    *("trust", "terminal"),  # files of others, and what they may do here
    "loss_catalogue",  # titles, looks and ranges of the losses, for studies, reports and pages
}

# What each folder of the losses may import of the others: those below it. A family imports no other but for the one
# whose exact expectation is its limit.
FAMILIES = {*("_expected", "_noised", "_smooth_hinge", "_smooth_svm", "_soft_topk", "_sorting", "_grouping")}
BELOW: dict[str, set[str]] = {
    "_core": set(),
    "_rows": {"_core"},
    **{family: {"_core", "_rows"} for family in FAMILIES},
    "_noised": {"_core", "_rows", "_expected"},
    "operators": {"_core", "_rows", *FAMILIES},
    "functional": {"_core", "_rows", *FAMILIES, "operators"},
    "modules": {"_core", "_rows", *FAMILIES, "operators", "functional"},
    "testing": {"_core", "_rows", *FAMILIES, "operators", "functional", "modules"},
}


@cache
def imported(path: Path) -> set[str]:
    return names_of(ast.walk(ast.parse(path.read_text())))


def names_of(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def parts_used(part: str) -> set[str]:
    """The other parts that a part imports from, also inside functions."""
    pieces = [name.split(".") for path in (PLATFORM / part).rglob("*.py") for name in imported(path)]
    others = {own[1] for own in pieces if own[0] == "topk_platform" and len(own) > 1} - {part}
    return {other for other in others if (PLATFORM / other).is_dir()} - LEAVES


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_parts_import_what_they_may_and_may_import_no_more(part: str) -> None:
    assert parts_used(part) == ALLOWED[part]


def test_no_parts_import_each_other_in_a_circle() -> None:
    left = dict(ALLOWED)
    while lowest := [part for part, below in left.items() if not below & left.keys()]:
        for part in lowest:
            del left[part]
    assert not left


def test_every_part_of_the_platform_has_its_rule() -> None:
    folders = {path.name for path in PLATFORM.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders <= set(ALLOWED)


def test_each_library_is_known_where_it_belongs_alone() -> None:
    known = {"ray": {"running"}, "mlflow": {"tracking"}, "optuna": {"protocol", "reports"}}
    for path in PLATFORM.rglob("*.py"):
        part, tops = path.relative_to(PLATFORM).parts[0], {name.split(".")[0] for name in imported(path)}
        if path.name == "parquet.py":  # a dataset in that format, which imports it when it is read
            tops.discard("pyarrow")
        if part in ("training", "data", "models"):
            assert not tops & {"pyarrow", "duckdb", "pydantic", "typer", "rich"}, path
        assert all(part in parts for library, parts in known.items() if library in tops), path


def test_the_losses_import_nothing_of_the_platform_and_the_platform_no_study() -> None:
    for path in (ROOT / "losses").rglob("*.py"):
        assert not {name.split(".")[0] for name in imported(path)} & {"topk_platform", "topk_studies"}, path
    for path in PLATFORM.rglob("*.py"):
        assert "topk_studies" not in {name.split(".")[0] for name in imported(path)}, path


def folders_of_losses(path: Path) -> set[str]:
    """The folders of the losses that a file imports from."""
    pieces = [name.split(".") for name in imported(path)]
    return {
        own[1] for own in pieces if own[0] == "topk_losses" and len(own) > 1 and (LOSSES / own[1]).is_dir()
    }


@pytest.mark.parametrize("folder", sorted(BELOW))
def test_folders_of_the_losses_import_from_below_alone(folder: str) -> None:
    for path in (LOSSES / folder).rglob("*.py"):
        assert folders_of_losses(path) <= BELOW[folder] | {folder}, path


def test_every_folder_of_the_losses_has_its_rule_and_no_two_import_each_other() -> None:
    assert {path.parent.name for path in LOSSES.glob("*/*.py")} == set(BELOW)
    used = {
        folder: set().union(*map(folders_of_losses, (LOSSES / folder).rglob("*.py"))) - {folder}
        for folder in BELOW
    }
    assert not [(first, second) for first in used for second in used[first] if first in used[second]]


def test_root_files_of_the_losses_import_the_core_alone() -> None:
    above = {"__init__.py": set(BELOW), "backends.py": {"_core", "modules"}}
    for path in LOSSES.glob("*.py"):
        assert folders_of_losses(path) <= above.get(path.name, {"_core"}), path


def at_import(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, what is for type checkers alone left out."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for_types = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)
        if not for_types:
            yield from at_import(getattr(statement, "body", []))
        yield from at_import(getattr(statement, "orelse", []))
        yield from at_import(getattr(statement, "finalbody", []))
        for handler in getattr(statement, "handlers", []):
            yield from at_import(handler.body)


def needs_compiler(file: str) -> bool:
    return file.endswith("kernels") or file == "numba_cache"


def test_kernels_alone_need_a_compiler_to_be_imported() -> None:
    """Nor does anything else import them before a call needs them."""
    for path in LOSSES.rglob("*.py"):
        names = {tuple(name.split(".")) for name in names_of(at_import(ast.parse(path.read_text()).body))}
        if not needs_compiler(path.stem):
            assert not {name[0] for name in names} & {"numba", "triton", "llvmlite"}, path
            assert not [
                name for name in names if name[0] == "topk_losses" and any(map(needs_compiler, name))
            ], path


def test_no_package_marker_where_it_would_hide_something() -> None:
    for folder in ("platform", "losses", "studies"):
        assert not (ROOT / folder / "__init__.py").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_how_many_examples_a_property_test_tries_is_left_to_the_profile() -> None:
    """Else `make fuzz` would try no more of them than `make test`."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert not re.search(r"\b(max_examples|derandomize|deadline)=", path.read_text()), path


def test_every_fault_in_the_docs_has_its_test() -> None:
    """Each row of the table names a test, or a file of tests, that is there."""
    table = (ROOT / "docs" / "faults.md").read_text().partition("\n## ")[0]
    rows = [line.split("|")[3] for line in table.splitlines() if line.startswith("| ")][2:]
    for cell in rows:
        named = re.findall(r"`([\w/]*\.py)?(?:::(\w+))?`", cell)
        assert named or cell.strip() == "the same", cell
        file = ""
        for result, name in named:
            file = result or file
            text = (ROOT / "tests" / file).read_text()
            assert f"def {name}(" in text if name else text, f"{file}::{name}"
