"""A real MLflow server that is down at the start, in the middle and at the end; a second driver beside the first."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

Rows = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
    pytest.mark.timeout(3600),
    pytest.mark.slow,
]

# Asked again every half second, and by single requests.
IMPATIENT = "import topk_platform.tracking.feed as f; f.Feed.__init__.__kwdefaults__['pauses'] = (0.5,)"


class Server:
    """An MLflow server on loopback that can be killed and started again with what it knew.

    Args:
        folder: Where its database and artifacts lie.
        until: Waits for a condition.
    """

    def __init__(self, folder: Path, until: Until) -> None:
        with socket.create_server(("127.0.0.1", 0)) as result:
            self.port: int = result.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder, self._until = folder, until
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self._folder}/server.db", "--workers", "1"]
        command += ["--artifacts-destination", str(self._folder / "artifacts")]
        self._process = subprocess.Popen(
            command,
            cwd=self._folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._until(self._answers, "the server answers")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=10) as answer:  # noqa: S310 - our own
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def keys(self) -> Counter[str]:
        """Return how many runs there are of each trial."""
        client = MlflowClient(self.uri)
        experiment = client.get_experiment_by_name("small")
        runs = client.search_runs([experiment.experiment_id], max_results=1000) if experiment else []
        ended = (run.data.tags for run in runs if run.info.status != "RUNNING")
        return Counter(tags["topk.key"] for tags in ended if "topk.key" in tags)


@pytest.fixture
def server(tmp_path: Path, until: Until) -> Iterator[Server]:
    made = Server(tmp_path, until)
    yield made
    made.kill()


def test_down_at_the_start_in_the_middle_and_at_the_end(
    server: Server,
    lab: Any,
    reference: Any,
    rows: Rows,
    until: Until,
    check_undisturbed: Callable[..., None],
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    command = ("run", "my_lab:study", "--workers", "2", "--store", store, "--mlflow", server.uri)

    def printed(what: str) -> bool:
        return what in (tmp_path / "log").read_text()

    # At the start: nothing begins.
    _, err = lab.topk(*command, code=2)
    (line,) = err.splitlines()
    assert line.startswith("topk: mlflow must be the URI of an MLflow server that answers, ")
    assert "Connection refused" in line and not store.exists()
    # In the middle: the study goes on, and it is filled in once it is back.
    server.start()
    lab.allow(1)
    with (tmp_path / "log").open("w") as log:
        process = lab.start(*command, before=IMPATIENT, stderr=log, MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    until(lambda: len(server.keys()) == 1, "MLflow has the first trial", process)
    server.kill()
    lab.allow(5)
    until(lambda: len(rows(store, "small")) == 5, "four more have ended", process)
    until(lambda: printed("MLflow is behind and is tried again: "), "it is told of", process)
    check_second_driver(lab, process.pid, *command)
    server.start()
    until(lambda: len(server.keys()) == 5, "MLflow has them all", process)
    # At the end: it is told of, by `topk status` as well, and filled in by `topk sync`.
    server.kill()
    lab.allow(10**6)
    out, _ = process.communicate()
    assert process.returncode == 0, out
    assert "MLflow is behind: " in out and "Connection refused; `topk sync " in out and "` fills it in" in out
    check_undisturbed(store, reference)
    assert "MLflow is behind: " in lab.topk("status", "--store", store)[0]
    server.start()
    assert len(server.keys()) < 16
    lab.topk("sync", "small", "--store", store, "--mlflow", server.uri)
    assert server.keys() == Counter(row["key"] for row in rows(store, "small"))
    assert "MLflow is behind" not in lab.topk("status", "--store", store)[0]


def check_second_driver(lab: Any, pid: int, *command: str | Path) -> None:
    """Check that one more driver on the same folder is refused in a line, and that it is told who drives."""
    _, err = lab.topk(*command[:-2], code=2)
    (line,) = (line for line in err.splitlines() if line.startswith("topk: "))
    assert f"is being written by another process: process {pid} on " in line
    assert f"small: driven by process {pid} on " in lab.topk("status", *command[-4:-2])[0]
