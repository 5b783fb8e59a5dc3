"""The folders for Tune's files: of drivers that live, that have ended and that were killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from topk_platform.running.scratch import scratch_folder

HOLD = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from topk_platform.running.scratch import scratch_folder
with scratch_folder() as folder:
    open(folder + "/something", "w").close()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_nothing_is_left_at_the_end(temporary: Path) -> None:
    with scratch_folder() as folder:
        (Path(folder) / "file").touch()
        assert Path(folder).parent == temporary
    assert not list(temporary.iterdir())


def test_what_a_killed_driver_left_is_swept_and_what_a_living_one_holds_is_not(temporary: Path) -> None:
    (temporary / "topk-tune-of-an-earlier-version").mkdir()
    (temporary / "topk-tunes").mkdir()
    command = [sys.executable, "-c", HOLD, str(temporary)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        held = Path(other.stdout.readline().strip())
        with scratch_folder() as folder:
            assert (held / "something").exists()
            assert {path.name for path in temporary.glob("*/")} == {
                held.name,
                Path(folder).name,
                "topk-tunes",
            }
        other.kill()
        other.wait()
        assert held.exists()
        with scratch_folder():
            assert not held.exists()
    assert [path.name for path in temporary.iterdir()] == ["topk-tunes"]
