"""What the site's pages need beyond MyST: links out of `docs/`, and a place for pages that no section names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

__all__ = ["setup"]

_PAGES = {
    "../benchmarks/README.md": "benchmarks.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changelog.md",
}
"""Files that a page of the site includes: in the repository a link leads to the file, in the site to the page."""
_REST = "<!-- the pages that no section names -->"


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    text = source[0]
    for file, inside in _PAGES.items():
        up = "../" * page.count("/")
        text = text.replace(f"]({up}{file}", f"]({up}{inside}")
    source[0] = text.replace(_REST, "\n".join(_unnamed(app, text))) if page == "index" else text


def _unnamed(app: Sphinx, index: str) -> list[str]:
    """Return the pages of the top folder that the index does not name, so that a new one is never lost."""
    named = {
        Path(line.strip()).stem
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index, flags=re.DOTALL)
        for line in block.splitlines()
    }
    pages = sorted(page for page in app.env.found_docs if "/" not in page)
    return [page for page in pages if page not in named | {"index"}]


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect both to the reading of sources."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
