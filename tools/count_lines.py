"""How large the project is: files, lines of code and words of documentation.

    python tools/count_lines.py [FOLDER]

A line of code is neither blank, nor a comment, nor part of a docstring.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

__all__ = ["code_lines"]

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER),
    *(tokenize.INDENT, tokenize.DEDENT),
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    r"""Return how many lines of a source hold code.

    Example:
        >>> code_lines("# a number\n\nx = 1\n")
        1
    """
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {n for t in tokens if t.type not in _NO_CODE for n in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def main() -> None:
    """Print a line for each source root, and one for the pages."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    for name in ("platform", "losses", "studies", "tests"):
        files = sorted((root / name).rglob("*.py"))
        lines = sum(code_lines(file.read_text()) for file in files)
        sys.stdout.write(f"{name}: {lines:,} lines of code in {len(files)} files\n")
    pages = [page for page in (root / "docs").rglob("*.md") if "_build" not in page.parts]
    words = sum(len(page.read_text().split()) for page in pages)
    sys.stdout.write(f"docs: {words:,} words in {len(pages)} pages\n")


if __name__ == "__main__":
    main()
