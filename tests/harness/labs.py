"""A laboratory of a user's own with the command run in it, and what tests of whole runs wait for and compare."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from feeds import runs
from in_process import topk

from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store

__all__ = ["IN_PROC", "Lab", "MlflowServer", "Reference", "SharedLab"]
__all__ += [
    "answers",
    "check_loopback",
    "check_undisturbed",
    "listening",
    "mlflow_server",
    "rows",
    "tracked",
    "until",
]

IN_PROC = [
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
    pytest.mark.timeout(3600),
]

PATIENCE = 900.0  # seconds, of which nothing takes a tenth: what waits for longer waits in vain
TIMES = {"train_seconds", "started", "ended", "seconds", "step_seconds"}
LISTENS = "0A"
# 127.0.0.1, the same within IPv6, and ::1, as the kernel writes them.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@dataclass
class Lab:
    """A folder with a user's modules, and the command run beside them in a process of its own.

    Args:
        folder: Where ``lab.py``, ``my_lab.py`` and ``labparts/`` lie, and what they write.
        mark: Is in the environment of every process that was started from here.
    """

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "COLUMNS": "200",
            "LAB_FOLDER": str(self.folder),
            "RAY_AUTH_MODE": "disabled",
            "TOPK_TEST_MARK": self.mark,
            # Nothing of this machine's user is found, nor left behind.
            "TORCH_HOME": str(self.folder / "no-weights"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }

    def start(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        before: str = "",
        stderr: IO[str] | int = subprocess.PIPE,
        **more: str,
    ) -> subprocess.Popen[str]:
        """Start the command as a terminal does, in a process group of its own, some Python code before it."""
        # Where the tests themselves run in a shell's background, what they start would not hear Ctrl-C.
        hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        code = f"{hears}\n{before}\nfrom topk_platform.cli import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=cwd or self.folder,
            env={**os.environ, **self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def topk(self, *arguments: str | Path, code: int = 0, **more: Any) -> tuple[str, str]:
        """Run the command; return what it wrote to stdout and stderr."""
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, out + err
        return out, err

    def start_held(
        self, allowed: int, store: Path | str, *options: str | Path, ended: int = 1, **more: Any
    ) -> subprocess.Popen[str]:
        """Start a run of ``my_lab:study`` of whose trainings so many are let on, by all runs of it so far.

        Return it once two more are held, and so many trials have ended as were let on.
        """
        held = len(self.noted("held")) + 2
        self.allow(allowed)
        process = self.start("run", "my_lab:study", "--checkpoints", "0", "--store", store, *options, **more)
        until(lambda: len(self.noted("held")) == held, "two trainings are held", process)
        until(lambda: len(rows(store, "small")) == ended, "what was let on has ended", process)
        return process

    def allow(self, trainings: int) -> None:
        """Let so many trainings of ``my_lab`` on, counted from one process to the next."""
        self._limit("allowed", trainings)

    def hold_at_step(self, number: int) -> None:
        """Hold every training of ``my_lab`` from its step of this number on, counted over all processes."""
        self._limit("last_step", number)

    def _limit(self, name: str, number: int) -> None:
        new = self.folder / f"{name}.new"
        new.write_text(str(number))
        new.replace(self.folder / name)

    def noted(self, name: str) -> list[str]:
        """Return the lines that the lab's modules wrote to a file."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def running(self) -> dict[int, str]:
        """Return the command lines of what runs with this lab's mark in its environment, by process id."""
        result = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    result[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it has ended meanwhile
                continue
        return result

    def listening(self) -> list[tuple[str, str]]:
        """Return the command lines of these processes, each with an address that it listens on, in hexadecimal."""
        return [(name, address) for pid, name in self.running().items() for address in listening(pid)]


class SharedLab(Lab):
    """A lab whose commands run in this process, beside a Ray that is there already."""

    def topk(self, *arguments: str | Path, code: int = 0, **more: Any) -> tuple[str, str]:
        """Run the command; return what it wrote to stdout and stderr."""
        said = topk(*arguments)
        assert said.code == code, said.out + said.err
        return said.out, said.err


def listening(pid: int) -> set[str]:
    sockets = set()
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            sockets.update(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
    except OSError:  # closed, or ended, meanwhile
        pass
    result = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS and inode in sockets:
                result.add(local.partition(":")[0])
    return result


def check_loopback(result: list[tuple[str, str]]) -> None:
    """Check that of a Ray and its driver everything listens, and nowhere but on loopback."""
    for kind in ("gcs_server", "raylet", "ray::", "topk_platform.cli"):
        assert any(kind in name for name, _ in result), f"no {kind} listens"
    assert not [name for name, address in result if address not in LOOPBACK]


def until(condition: Callable[[], bool], what: str, process: subprocess.Popen[str] | None = None) -> None:
    """Wait for a condition, which a process that has ended cannot bring about any more."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.poll() is not None:
            pytest.fail(f"it ended before {what}: {process.communicate()}")
        assert time.monotonic() < end, f"waited {PATIENCE} s for {what}"
        time.sleep(0.05)


def answers(url: str, method: str = "GET") -> bool:
    """Return whether a server answers a request with success."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass(frozen=True)
class Reference:
    """An undisturbed run of ``my_lab:study`` with two workers.

    Args:
        store: Its store.
        steps: How many training steps it took.
    """

    store: Path
    steps: int


def rows(store: Path | str, study: str = "lab", kind: str = "trials") -> list[dict[str, Any]]:
    """Return a ledger's rows without times, in an order of their own."""
    table = Ledger.open(Store.open(store), study).read(kind).to_pylist()
    plain = ({name: value for name, value in row.items() if name not in TIMES} for row in table)
    return sorted(plain, key=lambda row: (row["key"], row.get("epoch", 0)))


def check_undisturbed(store: Path | str, reference: Reference) -> None:
    """Check that a store of ``my_lab:study`` holds what an undisturbed run holds, and nothing of the way there."""
    for kind in ("trials", "epochs"):
        assert rows(store, "small", kind) == rows(reference.store, "small", kind)
    result, wanted = (Store.open(folder).at("small") for folder in (store, reference.store))
    assert result.read("tables/table.csv") == wanted.read("tables/table.csv")
    assert result.folders("checkpoints") == [] and result.names("lease") == []


def tracked(uri: str, *, ended: bool = False) -> Counter[str]:
    """Return how many runs MLflow has of each trial of ``my_lab:study``, those alone that have ended if asked to."""
    result = (run for run in runs(uri, "topk.key", "small") if not ended or run.info.status != "RUNNING")
    return Counter(run.data.tags["topk.key"] for run in result)


def mlflow_server(address: str, port: int, folder: Path | str) -> list[str]:
    """Return the command of an MLflow server whose database and artifacts lie in a folder."""
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", address]
    command += ["--port", str(port), "--backend-store-uri", f"sqlite:///{folder}/server.db"]
    return [*command, "--artifacts-destination", f"{folder}/artifacts"]


class MlflowServer:
    """An MLflow server on loopback that can be killed and started again with what it knew.

    Args:
        folder: Where its database, artifacts and log lie.
    """

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as result:
            self.port: int = result.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = mlflow_server("127.0.0.1", self.port, self._folder)
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self._folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        until(lambda: answers(f"{self.uri}/health"), "the server answers")

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
