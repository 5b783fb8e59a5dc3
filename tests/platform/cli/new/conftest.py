"""The command ``topk new``, as a function of its arguments."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest


@pytest.fixture
def new(
    monkeypatch: pytest.MonkeyPatch, topk: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """In a folder of its own, without a terminal; returns the exit code and what was written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return partial(topk, "new")
