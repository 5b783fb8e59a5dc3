"""What the pages name exists: commands and their options, losses, files that they link to."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

import topk_losses
import topk_platform
from topk_platform.cli.app import COMMANDS, load_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("[a-z]*/*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_leads_to_files_that_are_there(page: Path) -> None:
    """As they lie in the repository; `make docs` looks at the same links as the site has them, anchors too."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?://|#|_pictures/", target):
            assert (page.parent / unquote(target.partition("#")[0])).exists(), target


def test_every_file_of_the_repository_that_is_named_exists() -> None:
    """``NAME`` and ``FAMILY`` stand for names; the tests of faults have a test of their own."""
    roots = [ROOT, *(ROOT / folder for folder in ("losses", "platform", "studies", "platform/topk_platform"))]
    kinds = "tests|benchmarks|tools|deploy|platform|losses|studies|running|sources|topk_[a-z]+"
    for page in PAGES:
        if page.name != "faults.md":
            for name in re.findall(rf"`((?:{kinds})/[\w./-]+)", page.read_text()):
                stands = re.search("NAME|FAMILY", name) or any((root / name).exists() for root in roots)
                assert stands, (page, name)


def exists(dotted: str) -> bool:
    """Whether a module, or a name in one, can be imported by this path."""
    *modules, last = dotted.split(".")
    try:
        parent = importlib.import_module(".".join(modules))
    except ImportError:
        return False
    return hasattr(parent, last) or importlib.util.find_spec(dotted) is not None


def test_every_name_of_the_packages_that_is_named_exists() -> None:
    """Written with its path, as in a study or an import; files, and what errors quote, are not names."""
    for page in PAGES:
        for dotted in re.findall(r"\btopk_(?:platform|losses|studies)(?:\.\w+)+", page.read_text()):
            assert dotted.endswith((".py", ".csv")) or exists(dotted), (page, dotted)


@cache
def options(command: str) -> set[str]:
    parameters = load_command(command).params
    names = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in names if name.startswith("-")} | {"--help", "--debug"}


def commands_of(page: Path) -> list[str]:
    """The command lines that a page shows in blocks and in sentences, without comments and pipes."""
    text = page.read_text()
    blocks = re.findall(
        r"^ {4}(?:\.venv/bin/)?(topk [a-z].*)$", text.replace("\\\n", " "), flags=re.MULTILINE
    )
    return [re.split("[#|]", line)[0] for line in [*blocks, *re.findall("`(topk [a-z][^`]*)`", text)]]


def test_every_command_and_option_that_is_named_exists() -> None:
    for page in PAGES:
        for line in commands_of(page):
            _, command, *arguments = line.split()
            assert command in COMMANDS, (page, line)
            named = {word for word in arguments if re.fullmatch("--?[a-z][a-z-]*", word)}
            assert named <= options(command), (page, line)


def test_every_command_is_in_the_list_of_all() -> None:
    page = (DOCS / "commands.md").read_text()
    assert sorted(re.findall(r"^\| `topk ([a-z]+)", page, flags=re.MULTILINE)) == sorted(COMMANDS)


def test_the_reference_has_everything_that_the_packages_export() -> None:
    platform, losses = (DOCS / "api" / "platform.md").read_text(), (DOCS / "api" / "losses.md").read_text()
    documented = set(re.findall(r"\w+", platform))
    assert set(topk_platform.__all__) <= documented
    documented = set(re.findall(r"\w+", losses + (DOCS / "losses" / "index.md").read_text()))
    assert {*topk_losses.__all__, *topk_losses.functional.__all__} <= documented
