"""What keeps the house small and its names plain: test folders like those of the code, short functions, names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
MIRRORED = {
    "losses": ROOT / "losses/topk_losses",
    "platform": ROOT / "platform/topk_platform",
    "studies": ROOT / "studies/topk_studies",
    "tools": ROOT / "tools",
    "benchmarks": ROOT / "benchmarks",
}
CODE = ("losses", "platform", "studies", "tools", "benchmarks", "docs/extensions", "docs/examples")

OF_MANY = {Path("hostile"), Path("kernels")}  # folders of tests of many modules

# Folders of more files than a reader takes in, whose files are alike or one family.
LARGE_FOLDERS = {
    "platform/topk_platform/specs": "a part of a study each",
    "losses/topk_losses/functional": "a family of losses each",
    "losses/topk_losses/modules": "a family of losses each",
    "losses/topk_losses/_noised": "one family, each kernel per device",
    "losses/topk_losses/_smooth_svm": "one family, each kernel per device",
    "benchmarks": "a benchmark each",
    "studies/topk_studies": "the studies of a paper or of a kind of data each",
    "tests/end_to_end": "a fault or a kind of cluster each",
    "tests/harness": "what the tests of one subject share each",
}
MOST_FILES = 15

# Files of the platform with more lines than a reader takes in at once; none is added.
LONG_FILES = {}
LONGEST_FILE = 300
# The least median of the lines of a folder's files: small files that are read together are one.
LEAST_MEDIAN = 100

# Functions of more than 60 lines of code; none is added.
LONG_FUNCTIONS = {
    "losses/topk_losses/_noised/lanes_kernels.py:draw": "a CPU kernel",
    "losses/topk_losses/_smooth_svm/cuda_kernels.py:smooth_forward": "a GPU kernel",
    "losses/topk_losses/_soft_topk/cuda_kernels.py:soft_forward": "a GPU kernel",
    "platform/topk_platform/cli/new/new.py:new": "a command and the help of its options",
    "studies/topk_studies/sawada2020.py:_claims": "a list of claims",
}
MOST_LINES = 60

# Names that meant many things, or nothing: of variables, arguments, attributes, functions and classes.
BANNED = {"told", "found", "place", "desk", "board", "boards", "aside", "elsewhere", "undone", "room"}
BANNED_IN_THE_PLATFORM = {"one", "lane", "lanes", "absent"}  # kernels have lanes, formulas ones


def sources(*roots: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for root in roots for path in sorted((ROOT / root).rglob("*.py"))]


def long_functions(source: str) -> list[str]:
    """The names of a source's functions of too many lines; a source of so few lines is not parsed."""
    text = (ROOT / source).read_text()
    tree = ast.parse(text if text.count("\n") > MOST_LINES else "")
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in nodes if lines_of_code(text, node) > MOST_LINES]


def banned_names(source: str) -> set[str]:
    """The banned names of a source; one without such a word, which most are, is not parsed."""
    text = (ROOT / source).read_text()
    ours = source.startswith(("platform", "studies", "tools"))
    banned = BANNED | BANNED_IN_THE_PLATFORM if ours else BANNED
    suspected = re.search(rf"\b_*({'|'.join(banned)})_*\b", text)
    return {name for name in defined_names(ast.parse(text if suspected else "")) if name.strip("_") in banned}


def lines_of_code(text: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines from ``def`` on that hold code, without docstring, comments and lines that only close brackets."""
    lines = [line.strip() for line in text.splitlines()[function.lineno - 1 : function.end_lineno]]
    text = ast.get_docstring(function, clean=False) or ""
    documented = sum(bool(line.strip()) for line in text.splitlines()) + ("\n" in text)
    return sum(bool(line.strip(")]},")) and not line.startswith("#") for line in lines) - documented


def defined_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name):
                yield name


@pytest.mark.parametrize("root", MIRRORED)
def test_folders_of_tests_are_those_of_the_code(root: str) -> None:
    tests, code = ROOT / "tests" / root, MIRRORED[root]
    for folder in {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - OF_MANY:
        assert (code / folder).is_dir() or (code / f"_{folder}").is_dir(), folder


def test_no_function_is_longer_than_a_screen() -> None:
    long = {f"{source}:{name}" for source in sources(*CODE) for name in long_functions(source)}
    assert long - set(LONG_FUNCTIONS) == set()


def test_no_folder_holds_more_files_than_a_reader_takes_in() -> None:
    files = Counter(str(Path(path).parent) for path in sources(*CODE, "tests"))
    large = {folder for folder, count in files.items() if count > MOST_FILES}
    assert large - set(LARGE_FOLDERS) == set()


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_files_of_the_platform_are_neither_too_long_nor_too_short() -> None:
    platform = MIRRORED["platform"]
    files = sorted(platform.rglob("*.py"))
    long = {str(path.relative_to(platform)) for path in files if lines_of(path) > LONGEST_FILE}
    assert long - set(LONG_FILES) == set()
    for folder in {path.parent for path in files}:
        least = median(map(lines_of, folder.glob("*.py")))
        assert least >= LEAST_MEDIAN, folder


def test_no_two_files_of_the_platform_share_a_name() -> None:
    files = [path for path in MIRRORED["platform"].rglob("*.py") if path.name != "__init__.py"]
    assert [name for name, count in Counter(path.name for path in files).items() if count > 1] == []


def test_no_name_is_banned() -> None:
    names = {source: banned_names(source) for source in sources(*CODE, "tests")}
    assert {source: banned for source, banned in names.items() if banned} == {}
