"""The command ``topk`` run in this process, and modules for it that no file has."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from topk_platform.cli import main

__all__ = ["Said", "offer", "topk"]


class Said(NamedTuple):
    """What a command said: its exit code, its output and its errors."""

    code: int
    out: str
    err: str


def topk(*words: str | Path) -> Said:
    """Run a command."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["topk", *map(str, words)]),
        patch.dict(os.environ, COLUMNS="200", NO_COLOR="1"),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Said(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def offer(patch: pytest.MonkeyPatch, module: str, **attributes: Any) -> None:
    """Let commands find a study, or a function that returns one, in a module of this name."""
    made = ModuleType(module)
    vars(made).update(attributes)
    patch.setitem(sys.modules, module, made)
