"""The notebook of the documentation is its page, "notebook.md", and runs as it stands."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TOOL = runpy.run_path(str(DOCS.parent / "tools" / "make_notebook.py"))
BYTES = 200_000


def stored() -> Any:
    return json.loads((DOCS / "notebook.ipynb").read_text())


def text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook["cells"] for output in cell.get("outputs", ())]


def kinds(notebook: Any) -> list[tuple[str, set[str]]]:
    return [(output["output_type"], set(output.get("data", ()))) for output in outputs(notebook)]


def test_the_notebook_is_the_page() -> None:
    """Made anew by tools/make_notebook.py where this fails."""
    result = [(cell["cell_type"], text(cell["source"])) for cell in stored()["cells"]]
    assert result == list(TOOL["cells_of"]((DOCS / "notebook.md").read_text()))


def test_it_shows_results_and_nothing_of_where_it_ran() -> None:
    written = (DOCS / "notebook.ipynb").read_text()
    assert not re.search(r"/(home|root|tmp|work|Users)/", written) and len(written) < BYTES
    assert {kind for kind, _ in kinds(stored())} == {"stream", "execute_result"}
    shown = set().union(*(data for _, data in kinds(stored())))
    assert {"text/html", "image/png"} <= shown
    progress = next(output for output in outputs(stored()) if output["output_type"] == "stream")
    assert "/24 trials: " in text(progress["text"])
    assert "u001b" not in written  # colours of a terminal


@pytest.mark.slow
def test_it_runs_and_shows_the_same_kinds_of_things(tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="the extra `tools` is not installed")
    pytest.importorskip("ipykernel", reason="the extra `tools` is not installed")
    made = TOOL["ran"](TOOL["notebook_of"]((DOCS / "notebook.md").read_text()), tmp_path)
    assert kinds(made) == kinds(stored())
    assert (tmp_path / "first.html").read_text().startswith("<!")
