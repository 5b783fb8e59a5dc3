"""The command ``topk new``, as a function of its arguments."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from topk_platform.cli import main


@pytest.fixture
def new(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """In a folder of its own, without a terminal; returns the exit code and what was written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["topk", "new", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return (int(caught.value.code or 0), *capsys.readouterr())

    return run
