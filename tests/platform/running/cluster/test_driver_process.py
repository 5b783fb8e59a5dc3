"""The folders for Ray's and Tune's files: of drivers that live, that have ended and that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from topk_platform.errors import UserError
from topk_platform.running.cluster import connecting as starting
from topk_platform.running.cluster.driver_process import interrupts_wait, scratch_folder
from topk_studies import digits

HOLD = """
import sys
from topk_platform.running.cluster.driver_process import scratch_folder
with scratch_folder() as folder:
    open(folder + "/something", "w").close()
    print(folder, flush=True)
    sys.stdin.read()
"""

OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]
ENTER = """
from topk_platform.running.cluster.driver_process import scratch_folder
with scratch_folder():
    pass
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


@contextmanager
def running(*command: str | Path) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-c", *map(str, command)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def left_by_a_killed_driver() -> Path:
    with running(HOLD) as other:
        assert other.stdout is not None
        return Path(other.stdout.readline().strip())


def test_it_is_its_owners_alone_and_nothing_is_left_at_the_end(temporary: Path) -> None:
    before = os.umask(0)
    try:
        with scratch_folder() as folder:
            (Path(folder) / "file").touch()
            assert Path(folder).parent == temporary
            assert Path(folder).stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    assert not list(temporary.iterdir())


def test_what_a_killed_driver_left_is_swept_and_what_a_living_one_holds_is_not(temporary: Path) -> None:
    with running(HOLD) as other:
        assert other.stdout is not None
        held = Path(other.stdout.readline().strip())
        with scratch_folder() as folder:
            assert (held / "something").exists()
            assert {*temporary.iterdir()} == {held, Path(folder)}
        other.kill()
        other.wait()
        assert held.exists()
        with scratch_folder():
            assert not held.exists()
    assert not list(temporary.iterdir())


def test_what_is_not_of_a_run_of_this_users_stays(temporary: Path) -> None:
    """Of the same name: a folder of the user's, one that others can write to, and a link to what a driver left."""
    (temporary / "topk-studies").mkdir(mode=0o700)
    left = left_by_a_killed_driver()
    open_to_all = left.rename(temporary / "topk-open")
    open_to_all.chmod(0o777)
    other = left_by_a_killed_driver().rename(temporary / "other")
    (temporary / "topk-link").symlink_to(other)
    with scratch_folder():
        pass
    names = {path.name for path in temporary.iterdir()}
    assert names == {"topk-studies", "topk-open", "other", "topk-link"}
    assert (other / "something").exists()


def test_what_a_process_of_a_killed_driver_still_uses_stays_until_it_has_ended(temporary: Path) -> None:
    left = left_by_a_killed_driver()
    code = "import sys; print(flush=True); sys.stdin.read()"
    with running(code, f"--session-dir={left}/r/session") as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        with scratch_folder():
            assert left.exists()
    with scratch_folder():
        assert not left.exists()


def test_a_folder_that_cannot_be_written_to_is_refused(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(temporary / "file"))
    with pytest.raises(UserError, match=f"{temporary}/file, must .* RAY_TMPDIR"), scratch_folder():
        pytest.fail("entered")


@pytest.mark.parametrize(
    ("options", "why"), [("size=64k", "No space left on device"), ("ro", "Read-only file system")]
)
def test_a_full_disk_and_one_that_is_read_only_are_named_as_that(
    options: str, why: str, temporary: Path
) -> None:
    if subprocess.run([*OWN_MOUNTS, "true"], capture_output=True).returncode:
        pytest.skip("no mounts of its own for a process here")
    script = f"mount -t tmpfs -o {options} none {temporary} && exec {sys.executable} -c '{ENTER}'"
    environment = {**os.environ, "RAY_TMPDIR": str(temporary)}
    done = subprocess.run(
        [*OWN_MOUNTS, "sh", "-c", script], env=environment, capture_output=True, text=True, timeout=120
    )
    output = done.stderr.splitlines()[-1]
    assert f"UserError: the folder for temporary files, {temporary}, must" in output and why in output


def test_its_path_is_short_enough_for_sockets(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the user names is taken as it is; Ray itself refuses one that is too long."""
    long = temporary / ("long" * 10)
    long.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(long))
    with scratch_folder() as folder:
        assert Path(folder).parent == long
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with scratch_folder() as folder:
        assert Path(folder).parent == Path("/tmp")
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        with scratch_folder() as folder:
            assert Path(folder).parent == Path(short)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_the_block_and_comes_then(number: signal.Signals) -> None:
    came: list[int] = []
    before = signal.signal(number, lambda number, _frame: came.append(number))
    try:
        with interrupts_wait():
            signal.raise_signal(number)
            assert not came
        assert came == [number]
        with interrupts_wait():
            pass
        assert came == [number]
    finally:
        signal.signal(number, before)


@pytest.mark.usefixtures("heard")
def test_what_the_block_raises_is_raised_in_place_of_the_interrupt() -> None:
    def work() -> None:
        with interrupts_wait():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        work()


@pytest.mark.usefixtures("heard")
def test_a_thread_that_is_never_interrupted_may_use_it() -> None:
    done = threading.Event()

    def work() -> None:
        with interrupts_wait():
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done.is_set()


@pytest.mark.usefixtures("heard")
def test_a_sigterm_while_ray_starts_comes_after_it_and_is_not_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own handler would end the process with exit code 15, in the midst of the start and without a word."""
    came: list[int] = []

    def init(**_options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda _number, _frame: pytest.fail("this is Ray's handler"))
        signal.raise_signal(signal.SIGTERM)
        assert not came

    monkeypatch.setattr(starting.ray, "init", init)
    before = signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    try:
        starting._start(digits(), 1, "ray")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
