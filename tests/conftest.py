"""Shared by all tests: the examples that Hypothesis tries, one torch thread, fixed seeds, quiet tools, an S3 server."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import hermetic
import pytest
import thrift
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("TOPK_REPORT", "off")  # seconds at the end of every run

# How many examples a property test tries is the profile's affair alone, so that `make fuzz` tries more of every test.
# Neither looks at a clock.
ANY_MACHINE = {
    "parent": settings.get_profile("default"),
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
}
settings.register_profile("tests", max_examples=10, derandomize=True, database=None, **ANY_MACHINE)
settings.register_profile("fuzz", max_examples=int(os.environ.get("FUZZ_EXAMPLES", "1000")), **ANY_MACHINE)
settings.load_profile("tests")


RAY = Path(__file__).parent / "end_to_end"


def pytest_configure(config: pytest.Config) -> None:
    """Watch the files with examples in docstrings too, which are in no folder below this one."""
    config.pluginmanager.register(hermetic, "hermetic")
    config.pluginmanager.register(thrift, "thrift")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Ray, which `make test` runs in processes of its own, and what of a grid is a slow test.

    What is marked gpu is skipped where there is none.
    """
    for item in items:
        if item.path.is_relative_to(RAY):
            item.add_marker("ray")
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    for item in beyond_one_of_each(items):
        item.add_marker("slow")


@cache
def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def beyond_one_of_each(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases of tests with several ``parametrize`` that are left when each of their rows has one case.

    So `make test` tries every row, and `make test-slow` all the other combinations. Tests that a seed or a GPU chooses
    stay whole.
    """
    grids: dict[str, list[tuple[set[object], pytest.Item]]] = {}
    for item in items:
        if hasattr(item, "callspec") and not any(map(item.get_closest_marker, ("slow", "gpu", "breaks"))):
            grids.setdefault(item.nodeid.partition("[")[0], []).append((rows_of(item), item))
    for cases in grids.values():
        tried: set[object] = set()
        diagonal = [item for rows, item in cases if tried.isdisjoint(rows) and not tried.update(rows)]
        missing = [item for rows, item in cases if not rows <= tried and not tried.update(rows)]
        kept = set(map(id, (*diagonal, *missing)))
        yield from (item for _, item in cases if id(item) not in kept)


def rows_of(item: Any) -> set[object]:
    """Return the row of each ``parametrize`` of a case, and the parameter of each fixture that has some."""
    values = {name: id(value) for name, value in item.callspec.params.items()}
    rows: set[object] = set()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        rows.add(tuple((name.strip(), values.pop(name.strip(), None)) for name in names))
    return rows | set(values.items())


@pytest.fixture(scope="session")
def seed_of_torch() -> Callable[[int], object]:
    """What seeds torch's generators: where no device is, the CPU's alone.

    For each kind of device that has not been used, `torch.manual_seed` writes down the stack of its caller, which takes
    longer than most tests.
    """
    import torch

    device = torch.accelerator.is_available()
    return torch.manual_seed if device else torch.default_generator.manual_seed


@pytest.fixture(autouse=True)
def one_thread_and_seed(seed_of_torch: Callable[[int], object]) -> Iterator[None]:
    """What a test does not draw from a generator of its own is the same whichever tests ran before it.

    So is what it finds in its process: :mod:`hermetic` says what is put back, and what fails.
    """
    import torch

    torch.set_num_threads(1)
    seed_of_torch(0)
    yield from hermetic.around_a_test()


@pytest.fixture
def heard() -> Iterator[None]:
    """Let a test, and what it starts, hear the signals that end a run, which a shell's background and nohup ignore."""
    wanted = {
        signal.SIGINT: signal.default_int_handler,
        **dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.SIG_DFL),
    }
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class ObjectStore:
    """An S3 server on loopback.

    Args:
        every: One put in so many is refused, as a busy server does; none by default.
        seconds: What each put takes beside its own time, as by a slow one.
    """

    def __init__(self, every: int = 0, seconds: float = 0.0) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._every, self._seconds = every, seconds
        self._backend = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        self.puts = self.refused = 0

    def __call__(self, request: dict[str, Any], start: Callable[..., Any]) -> Any:
        if request["REQUEST_METHOD"] == "PUT":
            self.puts += 1
            time.sleep(self._seconds)
            if self._every and self.puts % self._every == 0:
                self.refused += 1
                start("503 Slow Down", [("Content-Length", "0")])
                return [b""]
        return self._backend(request, start)

    def bucket(self) -> str:
        """Return the URI of a store in a bucket of its own."""
        name, (host, port) = f"b{uuid.uuid4().hex}", self._server.server_address[:2]
        connection = HTTPConnection(host, port)
        connection.request("PUT", f"/{name}")
        assert connection.getresponse().status == 200
        connection.close()
        return f"s3://{name}/runs?endpoint=http://{host}:{port}&region=us-east-1"

    def __enter__(self) -> ObjectStore:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    with ObjectStore() as server:
        yield server


@pytest.fixture
def busy_object_store(credentials: None) -> Iterator[ObjectStore]:
    with ObjectStore(every=20, seconds=0.02) as server:
        yield server


@pytest.fixture
def bucket(object_store: ObjectStore, credentials: None) -> str:
    return object_store.bucket()
