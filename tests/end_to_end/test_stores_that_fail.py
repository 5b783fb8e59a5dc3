"""Stores that are full, read-only, slow or busy for a while, and two drivers on one: the study ends as undisturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from labs import IN_PROC, check_undisturbed, until

from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store

pytestmark = [*IN_PROC, pytest.mark.slow]

RUN = ("run", "my_lab:study", "--workers", "2", "--checkpoints", "0")
CLOCK = """
import os, time
now = time.time
time.time = lambda: now() - 3600 * os.path.exists({back!r})
"""
OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


def test_a_slow_s3_that_refuses_one_put_in_twenty_and_a_second_driver(
    lab: Any, busy_object_store: Any, reference: Any
) -> None:
    store = busy_object_store.bucket()
    process = lab.start_held(1, store, "--workers", "2")
    _, err = lab.topk("run", "my_lab:study", "--store", store, code=2)
    (line,) = (line for line in err.splitlines() if line.startswith("topk: "))
    assert f"is being written by another process: process {process.pid} on " in line
    out, _ = lab.topk("status", "--store", store)
    assert f"small: driven by process {process.pid} on " in out
    lab.allow(10**6)
    output = "".join(process.communicate())
    assert process.returncode == 0, output
    assert busy_object_store.refused >= 10
    check_undisturbed(store, reference)


@dataclass
class Disk:
    """A small disk of its own, which a command and its children see in place of a folder, and no other process.

    Args:
        folder: The folder.
        process: The shell that made it; it runs the command, and again once there is no file ``filler``.
        log: What the commands say.
    """

    folder: Path
    process: subprocess.Popen[str]
    log: Path

    @property
    def seen(self) -> Path:
        """The folder as it is seen from outside, by plain reading and writing alone."""
        return Path(f"/proc/{self.process.pid}/root{self.folder}")

    def fill(self) -> None:
        """Take what space there is."""
        with suppress(OSError), (self.seen / "filler").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def mend(self) -> None:
        (self.seen / "filler").unlink()

    def remount(self, how: str) -> None:
        enter = ["nsenter", "--target", str(self.process.pid), "--user", "--mount"]
        command = [*enter, "mount", "-o", f"remount,{how}", self.folder]
        # It is busy while a file is open for writing.
        until(lambda: subprocess.run(command, check=False).returncode == 0, f"it is {how}", self.process)

    def says(self, what: str) -> bool:
        return what in self.log.read_text()


@pytest.fixture
def disk(lab: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """A disk on which a study runs twice; the parameter is the pauses of the first run's ledger."""
    if subprocess.run([*OWN_MOUNTS, "true"], check=False).returncode:
        pytest.skip("this system lets nobody mount a disk of his own")
    folder, log = tmp_path / "disk", tmp_path / "log"
    folder.mkdir()
    # The first run gives up at once unless told otherwise, the second one is patient; neither leaves MLflow behind for
    # long.
    first = getattr(request, "param", "(0.1,)")
    code = "import topk_platform.tracking.feed as f; f.Feed.pause = 0.5\n"
    code += "import sys; from topk_platform.records.writer import Writer\n"
    code += "Writer.__init__.__defaults__ = (eval(sys.argv.pop(1)),)\n"
    code += "from topk_platform.cli import main; main()"
    (tmp_path / "command.py").write_text(code)
    topk = f"{sys.executable} -P {tmp_path}/command.py"
    arguments = f"{' '.join(RUN)} --store {folder}/store"
    script = f"""mount -t tmpfs -o size=24m tmpfs {folder}
        {topk} '{first}' {arguments}; echo code $?; while [ -e {folder}/filler ]; do sleep 0.1; done
        {topk} '(0.5,) * 600' {arguments}; echo code $?; cp -r {folder}/store {tmp_path}/copy"""
    with log.open("w") as file:
        process = subprocess.Popen(
            [*OWN_MOUNTS, "sh", "-c", script],
            cwd=lab.folder,
            env={**os.environ, **lab.environment, "PYTHONPATH": str(lab.folder)},
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
        )
    yield Disk(folder, process, log)
    for pid in (process.pid, *lab.running()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_disk_that_is_full_then_read_only_then_mended(
    disk: Disk, lab: Any, reference: Any, tmp_path: Path
) -> None:
    lab.allow(1)
    until(lambda: len(lab.noted("held")) == 2, "two trainings are held", disk.process)
    disk.fill()
    lab.allow(10**6)
    until(lambda: disk.fill() or disk.says("code 2"), "it gives up", disk.process)
    (line,) = (line for line in disk.log.read_text().splitlines() if line.startswith("topk: "))
    assert "No space left on device" in line and "Traceback" not in disk.log.read_text()
    held, begun = len(lab.noted("held")), len(lab.noted("begun"))
    lab.allow(begun + 1)
    disk.mend()
    until(lambda: len(lab.noted("held")) == held + 2, "two trainings are held again", disk.process)
    lab.allow(begun + 3)
    until(lambda: disk.fill() or disk.says("; trying again in 0.5 s"), "it waits", disk.process)
    disk.mend()
    until(lambda: len(lab.noted("held")) == held + 4, "it goes on", disk.process)
    disk.remount("ro")
    lab.allow(10**6)
    until(lambda: disk.says("Read-only file system"), "it waits again", disk.process)
    disk.remount("rw")
    disk.process.wait()
    assert disk.says("code 0") and not disk.says("MLflow is behind: "), disk.log.read_text()
    check_undisturbed(tmp_path / "copy", reference)


@pytest.mark.parametrize("disk", ["(0.5,) * 600"], indirect=True)
def test_a_disk_that_is_full_while_the_last_confirmations_are_stored(
    disk: Disk, lab: Any, reference: Any, tmp_path: Path
) -> None:
    """The last two of sixteen trainings are confirmations; neither loses its ranks, its guesses or its network."""
    lab.allow(14)
    until(lambda: len(lab.noted("held")) == 2, "two confirmations are held", disk.process)
    folders = [disk.seen / "store" / "small" / name for name in ("ranks", "guesses", "models")]
    disk.fill()
    lab.allow(10**6)
    until(lambda: disk.fill() or len(lab.noted("steps")) == reference.steps, "they are trained", disk.process)
    end = time.monotonic() + 5  # seconds, in which they are tried to be stored
    until(lambda: disk.fill() or time.monotonic() > end, "they cannot be stored", disk.process)
    assert [len([*folder.glob("[!.]*")]) for folder in folders] == [2, 2, 2] and not disk.says("code")
    disk.mend()
    disk.process.wait()
    assert disk.log.read_text().count("code 0") == 2, disk.log.read_text()
    assert "could not be kept" not in disk.log.read_text()
    check_undisturbed(tmp_path / "copy", reference)
    store = Store.open(tmp_path / "copy").at("small")
    assert [len(store.names(folder.name)) for folder in folders] == [4, 4, 4]


def test_a_clock_that_is_set_back_an_hour(lab: Any, reference: Any, tmp_path: Path) -> None:
    """Of every process that runs Python, in the middle of trainings."""
    (tmp_path / "sitecustomize.py").write_text(CLOCK.format(back=str(tmp_path / "back")))
    store = tmp_path / "store"
    process = lab.start_held(1, store, "--workers", "2", PYTHONPATH=str(tmp_path))
    (tmp_path / "back").touch()
    lab.allow(10**6)
    output = "".join(process.communicate())
    assert process.returncode == 0, output
    check_undisturbed(store, reference)
    started = Ledger.open(Store.open(store), "small").read("trials", ["started"])["started"].to_pylist()
    assert (max(started) - min(started)).total_seconds() > 3000
