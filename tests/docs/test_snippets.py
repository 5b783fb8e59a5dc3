"""Every block of Python that the README and the pages show runs, one after the other, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import topk_platform
from topk_platform.testing import SamplerContract

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("*/*.md"))]
# Blocks that want what a run leaves, and the test that runs them there.
RUN_BY = {
    "columns.md": ROOT / "tests" / "platform" / "records" / "test_columns_page.py",
    "serving.md": ROOT / "tests" / "platform" / "serving" / "test_serving.py",
    "photos.md": ROOT / "tests" / "studies" / "test_photos.py",
    "notebook.md": ROOT / "tests" / "docs" / "test_notebook.py",
}
# Packages that a page tells its reader to install.
WANTS = {"own-data": "datasets"}
EXAMPLES = {path.read_text() for path in (DOCS / "examples").glob("*.py")}  # tests/studies/test_examples.py


def blocks(page: Path) -> list[str]:
    result = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [block for block in result if block not in EXAMPLES]


SHOWING = [page for page in PAGES if blocks(page) and page.name not in RUN_BY]


def assumed() -> dict[str, Any]:
    """What a page takes for granted: its reader's own network and data, and the names of the package it is about.

    In float64, which no kernel takes: in a new checkout each would be compiled for many seconds.
    """
    names = {name: getattr(topk_platform, name) for name in topk_platform.__all__}
    torch.manual_seed(0)
    return names | {
        "SamplerContract": SamplerContract,
        "torch": torch,
        "model": torch.nn.Linear(4, 10).double(),
        "images": torch.randn(8, 4).double(),
        "labels": torch.randint(10, (8,)),
        "scores": torch.randn(8, 10).double(),
        "counts": torch.arange(10, 20),
        "__name__": "a_page",
    }


@pytest.mark.parametrize("page", SHOWING, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a block prints is what the comments at its left margin say."""
    if page.stem in WANTS:
        pytest.importorskip(WANTS[page.stem])
    monkeypatch.chdir(tmp_path)
    names = assumed()
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)  # noqa: S102 - our own page
        printed = capsys.readouterr().out.splitlines()
        if printed:
            assert printed == [line[2:] for line in block.splitlines() if line.startswith("# ")]


@pytest.mark.parametrize("name", sorted(RUN_BY))
def test_what_does_not_run_here_runs_in_its_own_test(name: str) -> None:
    assert f'"{name}"' in RUN_BY[name].read_text()


def test_the_query_of_the_ledgers_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On trials made up so that those that it shall find have the numbers that the page prints."""
    page = (DOCS / "ledger.md").read_text()
    ((query,), printed) = re.findall(r'duckdb\.sql\("""(.*?)"""\)', page, re.DOTALL), page[page.index("┌") :]
    rows = [tuple(map(float, row)) for row in re.findall(r"│ +([\d.]+) │ +([\d.]+) │ +([\d.]+) │", printed)]
    places = {"phase": "search", "regime": "noise-0.8", "loss": "smooth_topk_svm", "status": "completed"}
    common = {"counts": True, **places}
    right = [
        {**common, "param.tau": tau, "param.learning_rate": rate, "validation.top5": top5 / 100}
        for tau, rate, top5 in rows
    ]
    wrong = [{**right[0], name: "other"} for name in places] + [{**right[0], "counts": False}]
    folder = tmp_path / "runs" / "letters_quick" / "tables"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([*wrong, *reversed(right)]), folder / "trials.parquet")
    monkeypatch.chdir(tmp_path)
    result = duckdb.sql(re.sub(r"^ *\.\.\.", "", query, flags=re.MULTILINE)).fetchall()
    assert len(rows) == 4 and sorted(result) == sorted(rows)
