"""A laboratory of a user's own outside the checkout, and the command run in it on real Ray."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from feeds import copy_database
from filelock import FileLock

from topk_platform.records import Ledger, Store

# Ray's workers give way to all other processes by default: beside other tests they would hardly come to run.
os.environ.setdefault("RAY_worker_niceness", "0")
# Ray keeps for a process whether it authenticates. If one Ray of a process does and the next does not, the driver
# refuses the calls of its head, which then cancels every actor.
os.environ["RAY_AUTH_MODE"] = "disabled"

SOURCES = Path(__file__).with_name("lab")
collect_ignore = [str(SOURCES)]

PATIENCE = 900.0  # seconds, of which nothing takes a tenth: what waits for longer waits in vain
TIMES = {"train_seconds", "started", "ended", "seconds", "step_seconds"}
LISTENS = "0A"
# 127.0.0.1, the same within IPv6, and ::1, as the kernel writes them.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}

RAYS_LOGS = ("gcs_server.out", "raylet.out", "python-core-driver-*.log")
LINES = 80


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of Ray's logs with a failed test, because they are deleted when its Ray ends."""
    report = yield
    if report.failed and "RAY_TMPDIR" in os.environ:
        report.sections += ends_of_logs(Path(os.environ["RAY_TMPDIR"]))
    return report


def ends_of_logs(folder: Path) -> list[tuple[str, str]]:
    """Return the last lines of the logs of each Ray in a folder, with their names."""
    logs = sorted(file for pattern in RAYS_LOGS for file in folder.glob(f"**/session_2*/logs/{pattern}"))
    return [(file.name, "\n".join(file.read_text(errors="replace").splitlines()[-LINES:])) for file in logs]


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
        from topk_platform.cli import main

        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", ["topk", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                main()
        assert (ended.value.code or 0) == code, out.getvalue() + err.getvalue()
        return out.getvalue(), err.getvalue()


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


def fill(folder: Path) -> None:
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    parts = folder / "labparts"
    (parts / "__pycache__").mkdir()
    (parts / "__pycache__" / "old.pyc").write_text("")
    (parts / "__init__.py").write_text("")


@pytest.fixture(scope="session", name="until")
def until_fixture() -> Callable[..., None]:
    return until


@pytest.fixture(scope="session", name="check_loopback")
def check_loopback_fixture() -> Callable[..., None]:
    return check_loopback


@pytest.fixture(scope="session", name="rows")
def rows_fixture() -> Callable[..., list[dict[str, Any]]]:
    return rows


@pytest.fixture(scope="session", name="check_undisturbed")
def check_undisturbed_fixture() -> Callable[..., None]:
    return check_undisturbed


@pytest.fixture(scope="session")
def make_lab(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Lab]:
    def make(kind: type[Lab] = Lab) -> Lab:
        folder = tmp_path_factory.mktemp("lab")
        fill(folder)
        return kind(folder)

    return make


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()


@pytest.fixture(scope="module")
def visited(make_lab: Callable[..., Lab]) -> Iterator[SharedLab]:
    """A lab that this process works in, as long as a module's tests last: its folder, environment and modules."""
    from topk_platform.versions import _loaded

    lab, modules = make_lab(SharedLab), set(sys.modules)
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="topk", dir="/tmp", ignore_cleanup_errors=True) as ray_folder,
    ):
        for name, value in {**lab.environment, "RAY_TMPDIR": ray_folder}.items():
            patch.setenv(name, value)
        for name in ("RAY_ADDRESS", "TOPK_CACHE", "TOPK_DATA"):
            patch.delenv(name, raising=False)
        # Three tries after a fault, and hardly a pause between them.
        patch.setattr("topk_platform.running.driver.tuning.PAUSES", (0.1, 0.2))
        patch.setattr("topk_platform.running.driver.hooks.MANY", 5)  # messages that Tune remembers
        patch.setattr("topk_platform.tracking.writing.make_database", copy_database)
        patch.chdir(lab.folder)
        patch.setattr(sys, "path", [str(lab.folder), *sys.path])
        yield lab
    for name in set(sys.modules) - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(lab.folder)):
            del sys.modules[name]
    _loaded.cache_clear()


@pytest.fixture(scope="module")
def shared(visited: SharedLab) -> Iterator[SharedLab]:
    """The same with a Ray of two workers that all its commands share."""
    from topk_platform.running.cluster.connecting import connected
    from topk_studies import digits

    with connected(digits(), None, 2):
        yield visited


@dataclass(frozen=True)
class Reference:
    """An undisturbed run of ``my_lab:study`` with two workers.

    Args:
        store: Its store.
        steps: How many training steps it took.
    """

    store: Path
    steps: int


@pytest.fixture(scope="session")
def reference(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Reference:
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return run_reference(make_lab(), base)
    with FileLock(
        base.parent / "reference.lock"
    ):  # once for all workers, whose folders are beside one another
        noted = base.parent / "reference.txt"
        if not noted.exists():
            result = run_reference(make_lab(), base)
            noted.write_text(f"{result.store} {result.steps}")
        store, _, steps = noted.read_text().rpartition(" ")
    return Reference(Path(store), int(steps))


def run_reference(lab: Lab, folder: Path) -> Reference:
    store = folder / "reference"
    # An address in the environment must not make a run without --address join anything.
    lab.topk("run", "my_lab:study", "--store", store, "--workers", "2", RAY_ADDRESS="127.0.0.1:1")
    return Reference(store, len(lab.noted("steps")))
