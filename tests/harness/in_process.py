"""The command ``topk`` run in this process."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from topk_platform.cli import main

__all__ = ["Said", "topk"]


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
