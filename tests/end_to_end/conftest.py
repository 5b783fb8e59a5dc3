"""A laboratory of a user's own outside the checkout, and the command run in it on real Ray."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from clusters import Site
from feeds import copy_database
from filelock import FileLock
from hosts import network
from labs import Lab, Reference, SharedLab

# Ray's workers give way to all other processes by default: beside other tests they would hardly come to run.
os.environ.setdefault("RAY_worker_niceness", "0")
# Ray keeps for a process whether it authenticates. If one Ray of a process does and the next does not, the driver
# refuses the calls of its head, which then cancels every actor.
os.environ["RAY_AUTH_MODE"] = "disabled"

SOURCES = Path(__file__).with_name("lab")
collect_ignore = [str(SOURCES)]


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


def fill(folder: Path) -> None:
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    parts = folder / "labparts"
    (parts / "__pycache__").mkdir()
    (parts / "__pycache__" / "old.pyc").write_text("")
    (parts / "__init__.py").write_text("")


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
        patch.setattr("topk_platform.running.dispatcher.PAUSES", (0.1, 0.2))
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
    from topk_platform.running.cluster.reaching import Patience
    from topk_studies import digits

    with connected(digits(), None, 2, Patience()):
        yield visited


@pytest.fixture
def site(lab: Lab, tmp_path: Path) -> Iterator[Site]:
    """Hosts that share the lab's folder, for a Ray on them."""
    (tmp_path / "hosts").mkdir()
    with network(tmp_path / "hosts", lab.folder) as net:
        yield Site(net, tmp_path, lab.folder, lab.environment)


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
