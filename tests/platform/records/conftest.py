from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from typing import Any

import pytest

from topk_platform import Arm, Choice, Float, Int, Loss, Model, Recipe, Regime, Study
from topk_platform.specs import EpochRecord, Trial, TrialRecord


@pytest.fixture
def study() -> Study:
    return make_study()


def make_study(*more: Loss) -> Study:
    losses = (Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1}), *more)
    arms = [Arm(Regime("r", "digits"), Model("mlp"), loss, 3, Recipe(epochs=2)) for loss in losses]
    return Study("s", arms, topk=(1, 3), trials=4, seeds=2)


@pytest.fixture
def wider_study() -> Study:
    space = {"learning_rate": Float(0.01, 1), "samples": Int(1, 9), "mode": Choice(("a", 2))}
    return make_study(Loss("noised_topk_hinge", space, {"learning_rate": 0.1, "samples": 3, "mode": "a"}))


@pytest.fixture
def record() -> Callable[..., TrialRecord]:
    def make(
        study: Study,
        number: int = 0,
        *,
        arm: int = 0,
        seed: int = 0,
        status: str = "completed",
        top3: float = 0.5,
        code: str = "c",
        versions: Mapping[str, str] | None = None,
    ) -> TrialRecord:
        chosen = study.arms[arm]
        trial = Trial(
            study.name,
            study.arm_id(chosen),
            chosen,
            study.topk,
            "confirm" if seed else "search",
            number,
            seed,
            0,
            chosen.loss.first,
            "f",
            code,
        )
        metrics = dict.fromkeys(study.metrics, top3)
        epochs = tuple(EpochRecord(e, 1.0 / e, metrics, 0.5, 0.1) for e in (1, 2))
        return TrialRecord(
            trial,
            status,
            "" if status == "completed" else "why",
            metrics,
            metrics if seed else None,  # type: ignore[arg-type]
            epochs,
            1.0,
            1000.0 + number,
            1001.0 + number,
            versions or {"torch": "x"},
        )

    return make


class ObjectStore:
    """An S3 server on loopback.

    Args:
        every: One put in so many is refused, as a busy server does; none by default.
    """

    def __init__(self, every: int = 0) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._every = every
        self._backend = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        self.puts = self.refused = 0

    def __call__(self, request: dict[str, Any], start: Callable[..., Any]) -> Any:
        if request["REQUEST_METHOD"] == "PUT":
            self.puts += 1
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


@pytest.fixture(scope="session")
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        yield


@pytest.fixture(scope="session")
def object_store(credentials: None) -> Iterator[ObjectStore]:
    with ObjectStore() as server:
        yield server


@pytest.fixture
def busy_object_store(credentials: None) -> Iterator[ObjectStore]:
    with ObjectStore(every=20) as server:
        yield server


@pytest.fixture
def bucket(object_store: ObjectStore) -> str:
    return object_store.bucket()
