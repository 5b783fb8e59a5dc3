"""What keeps the house small and its names plain: test files beside modules, short functions, small folders, words."""

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

# Test files that mirror no module, each with what it tests instead. A new one needs a reason here.
RULES_OF_MANY_MODULES = {
    "losses": {
        "kernels/test_fallback.py": "all losses where kernels cannot compute",
        "kernels/test_kernel_interface.py": "what all kernels have in common",
        "kernels/test_noised_kernel.py": "one kernel on each device",
        "kernels/test_smooth_kernel.py": "one kernel on each device",
        "kernels/test_soft_topk_kernel.py": "one kernel on each device",
        "noised/test_noised_topk.py": "an operator over the whole family",
        "noised/test_noised_topk_hinge.py": "a loss over the whole family",
        "expected/test_expected_topk.py": "an operator over the whole family",
        "soft_topk/test_lapsum.py": "a loss over the whole family",
        "sorting/test_sorting_cpu.py": "kernels against plain torch",
        "union/test_grouping.py": "two losses over one recursion",
        "test_contract.py": "the contract of all losses",
        "test_definitions.py": "all losses against their definitions",
        "test_invariance.py": "the invariances of all losses",
        "test_oracles.py": "oracles against one another",
        "test_package.py": "the package's interface",
        "test_refusals.py": "the arguments that any function refuses",
        "test_training.py": "every loss in a training",
    },
    "platform": {
        "cli/test_command.py": "what all commands have in common",
        "cli/test_kinds_of_study.py": "every command that reads, on every kind of study",
        "cli/test_smoke_option.py": "one option of several commands",
        "data/datasets/test_large_datasets.py": "datasets in small copies of their files",
        "hostile/test_bombs.py": "every reader of files",
        "hostile/test_hostile_files.py": "every reader of files",
        "hostile/test_texts.py": "every writer of text",
        "hostile/test_trust.py": "every reader of files",
        "protocol/test_contract.py": "the contract of all protocols",
        "protocol/test_searches_added.py": "a study that asks for more searches later",
        "protocol/test_whole_ensembles.py": "a study whose trials train together",
        "records/test_kept_stores.py": "every reader of stores",
        "records/test_random_damage.py": "damage of all kinds",
        "records/storage/test_store_paths.py": "stores by their addresses",
        "records/test_columns_page.py": "a page of the documentation",
        "reports/test_set_tables.py": "tables of sets",
        "running/cluster/test_gpu_share.py": "a GPU that several trials share",
        "running/test_written_tables.py": "the files that a run leaves",
        "specs/test_search_page.py": "a page of the documentation",
        "training/test_ensembles.py": "trainings in an ensemble",
        "training/test_gpu.py": "a training on a GPU",
        "training/test_images_in_files.py": "a training from files",
        "training/test_ranks.py": "the ranks that a training leaves",
        "training/test_recipes.py": "a training with each setting",
        "training/test_resuming.py": "a training that was interrupted",
        "training/test_sets.py": "the sets that a training leaves",
        "training/test_shared_draws.py": "the draws that trainings share",
    },
    "studies": {
        "test_examples.py": "the examples of the documentation",
        "test_papers.py": "the studies of papers",
        "test_shipped_claims.py": "the verdicts that the pages state",
        "test_spaces.py": "the spaces of all studies",
    },
    "benchmarks": {
        "test_gpu_command.py": "`make gpu`",
        "test_timings.py": "the benchmarks that time losses",
    },
}

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
LONG_FILES = {
    "data/datasets/parquet.py": "a dataset in Parquet files",
}
LONGEST_FILE = 300
# The least median of the lines of a folder's files: small files that are read together are one.
LEAST_MEDIAN = 100

# Functions of more than 60 lines of code; none is added.
LONG_FUNCTIONS = {
    "losses/topk_losses/_noised/lanes_kernels.py:draw": "a CPU kernel",
    "losses/topk_losses/_smooth_svm/cuda_kernels.py:smooth_forward": "a GPU kernel",
    "platform/topk_platform/cli/new/new.py:new": "a command and the help of its options",
    "studies/topk_studies/sawada2020.py:_claims": "a list of claims",
}
MOST_LINES = 60

BANNED = {"told", "found", "place"}  # names that meant many things
SUSPECTED = re.compile(rf"\b_*({'|'.join(sorted(BANNED))})_*\b")


def mirrors_a_module(path: Path) -> bool:
    """Whether a test file has the name of a module, or of the folder, at the same path."""
    root, *folders, name = path.relative_to(ROOT / "tests").with_suffix("").parts
    tested, subject = MIRRORED[root], name.removeprefix("test_")
    for folder in folders:
        existing = [one for one in (tested / folder, tested / f"_{folder}") if one.is_dir()]
        if not existing:
            return False
        tested = existing[0]
    names = (f"{subject}.py", subject, f"_{subject}", f"_{subject}.py", f"{subject}_kernels.py")
    return tested.name.removeprefix("_") == subject or any((tested / one).exists() for one in names)


def sources(*roots: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for root in roots for path in sorted((ROOT / root).rglob("*.py"))]


def long_functions(source: str) -> list[str]:
    """The names of a source's functions of too many lines; what cannot have so many is not looked at."""
    text = (ROOT / source).read_text()
    tree = ast.parse(text if text.count("\n") > MOST_LINES else "")
    functions = (one for one in statements(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return [one.name for one in functions if all_lines(one) > MOST_LINES and code_lines(one) > MOST_LINES]


def banned_names(source: str) -> int:
    """How many names of a source are banned; one without such a word, which most are, is not parsed."""
    text = (ROOT / source).read_text()
    tree = ast.parse(text if SUSPECTED.search(text) else "")
    return sum(name.strip("_") in BANNED for name in defined_names(tree))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what may hold a function, which no expression does."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield node
            yield from statements(node)


def all_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines from ``def`` on that hold code: no docstring, comment or blank line."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    lines = set(range(function.lineno, function.body[0].lineno))
    for statement in body:
        for node in ast.walk(statement):
            if (start := getattr(node, "lineno", None)) is not None:
                end = start if hasattr(node, "body") and isinstance(node.body, list) else node.end_lineno
                lines |= set(range(start, end + 1))
    return len(lines)


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
def test_a_test_file_stands_where_its_module_stands_or_gives_its_reason(root: str) -> None:
    tests = ROOT / "tests" / root
    others = {str(path.relative_to(tests)) for path in tests.rglob("test_*.py") if not mirrors_a_module(path)}
    assert others == set(RULES_OF_MANY_MODULES.get(root, {}))


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


def test_no_name_is_told_found_or_place() -> None:
    """As variable, argument, attribute, function or class."""
    counts = {source: banned_names(source) for source in sources(*CODE, "tests")}
    assert {source: count for source, count in counts.items() if count} == {}
