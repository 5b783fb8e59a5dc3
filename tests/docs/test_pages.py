"""What the pages name exists: commands, losses, files that they lead to."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from typer.main import get_command

import topk_losses
from topk_platform.cli import app

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


def test_every_command_that_is_named_exists() -> None:
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    for page in PAGES:
        named = set(re.findall(r"^ {4}(?:\.venv/bin/)?topk ([a-z]+)", page.read_text(), flags=re.MULTILINE))
        named |= set(re.findall(r"`topk ([a-z]+)", page.read_text()))
        assert named <= commands, page


def test_the_readme_is_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_every_loss_of_the_table_exists() -> None:
    text = (DOCS / "use-a-loss.md").read_text()
    table = text[text.index("| loss | module | function |") :].split("\n\n")[0]
    for name in re.findall(r"`(\w+)`", table):
        assert hasattr(topk_losses, name) or hasattr(topk_losses.functional, name), name
