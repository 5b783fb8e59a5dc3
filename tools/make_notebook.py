"""Makes docs/notebook.ipynb of docs/notebook.md: its text and code as cells, and what the code answers as outputs."""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["cells_of", "main", "notebook_of", "ran"]

_CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_ANSWERS = re.compile(r"^```text\n.*?^```\n|^!\[.*?\)\n|^\|.*\n", re.MULTILINE | re.DOTALL)
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def cells_of(page: str) -> Iterator[tuple[str, str]]:
    r"""Yield a page's cells, ``"markdown"`` or ``"code"`` with the text; what the page shows as answers is left out.

    Args:
        page: In Markdown. Code stands in blocks of ``python``, answers in blocks of ``text``, tables and pictures.

    Example:
        >>> list(cells_of("# Sum\n```python\n1 + 1\n```\n```text\n2\n```\n"))
        [('markdown', '# Sum'), ('code', '1 + 1')]
    """
    for index, part in enumerate(_CODE.split(page)):
        text = part.strip() if index % 2 else _ANSWERS.sub("", part).strip()
        if text:
            yield "code" if index % 2 else "markdown", text


def notebook_of(page: str) -> dict[str, Any]:
    """Return a notebook of a page, before it ran.

    Args:
        page: As of :func:`cells_of`.
    """
    cells: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells_of(page)):
        more: Mapping[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
        cells.append({"id": f"cell-{number}", "cell_type": kind, "metadata": {}, "source": text, **more})
    return {"cells": cells, "metadata": {"kernelspec": _KERNEL}, "nbformat": 4, "nbformat_minor": 5}


def ran(notebook: Mapping[str, Any], folder: Path, seconds: int = 900) -> dict[str, Any]:
    """Return a notebook with its outputs, of a kernel that works in a folder.

    Args:
        notebook: As :func:`notebook_of` returns it.
        folder: Where its code runs, and leaves what it writes.
        seconds: How long a cell may take.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell raises.
    """
    import nbformat  # noqa: PLC0415 - of the extra `tools`
    from nbclient import NotebookClient  # noqa: PLC0415 - as above

    made: Any = nbformat.from_dict(dict(notebook))  # type: ignore[no-untyped-call]
    client = NotebookClient(
        made,
        timeout=seconds,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
    )
    # Where it ran is nobody's business, and another folder each time.
    written: str = nbformat.writes(client.execute())  # type: ignore[no-untyped-call]
    result = json.loads(written.replace(str(folder), "."))
    result["metadata"] = {"kernelspec": _KERNEL}  # without versions, which say nothing of what it shows
    return dict(result)


def main() -> None:
    """Write the notebook beside the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", default=Path("docs/notebook.md"))
    page: Path = parser.parse_args().page
    with tempfile.TemporaryDirectory() as folder:
        made = ran(notebook_of(page.read_text()), Path(folder))
    page.with_suffix(".ipynb").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
