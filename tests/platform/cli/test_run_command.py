"""What ends a run from outside: a terminal that is closed, and a signal that is ignored."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from topk_platform.cli.consoles import Exit

# A run that has begun, in a terminal that is to be its own; what it says after the end of the terminal would fail.
RUN = """
import fcntl, os, sys, termios, time
from pathlib import Path
if sys.argv[1:] == ["terminal"]:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from topk_platform.cli.run_command import Course, interrupts_reported
import typer
def run():
    with interrupts_reported(Course()):
        Path("begun").touch()
        for _ in range(6000):
            time.sleep(0.01)
            if Path("enough").exists():
                return
app = typer.Typer()
app.command()(run)
app(args=[])
"""


pytestmark = pytest.mark.usefixtures("heard")


def start(folder: Path, *arguments: str, **more: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUN, *arguments]
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, **more)  # type: ignore[call-overload]
    while not (folder / "begun").exists():
        assert process.poll() is None
        os.sched_yield()
    return process  # type: ignore[no-any-return]


def test_a_terminal_that_is_closed_ends_a_run_in_good_order(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = start(tmp_path, "terminal", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(ours)
    assert process.wait(60) == Exit.HUNG_UP == 128 + signal.SIGHUP


def test_a_run_started_with_nohup_goes_on(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    (tmp_path / "enough").touch()
    assert process.wait(60) == 0


def test_a_hangup_says_how_to_go_on_where_somebody_reads_it(tmp_path: Path) -> None:
    process = start(tmp_path, stderr=subprocess.PIPE)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == Exit.HUNG_UP
    assert err == b"Interrupted before anything began; the same command goes on from here.\n"
