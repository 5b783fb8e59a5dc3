"""A real MLflow server that is down at the start, in the middle and at the end; a second driver beside the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labs import IN_PROC, MlflowServer, check_undisturbed, rows, tracked, until

pytestmark = [*IN_PROC, pytest.mark.slow]

# Asked again every half second, and by single requests.
IMPATIENT = "import topk_platform.tracking.feed as f; f.Feed.pause = 0.5"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MlflowServer]:
    made = MlflowServer(tmp_path)
    yield made
    made.kill()


def test_down_at_the_start_in_the_middle_and_at_the_end(
    server: MlflowServer, lab: Any, reference: Any, tmp_path: Path
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
    until(lambda: len(tracked(server.uri, ended=True)) == 1, "MLflow has the first trial", process)
    server.kill()
    lab.allow(5)
    until(lambda: len(rows(store, "small")) == 5, "four more have ended", process)
    until(lambda: printed("MLflow is behind and is tried again: "), "it is told of", process)
    check_second_driver(lab, process.pid, *command)
    server.start()
    until(lambda: len(tracked(server.uri, ended=True)) == 5, "MLflow has them all", process)
    # At the end: it is told of, by `topk status` as well, and filled in by `topk sync`.
    server.kill()
    lab.allow(10**6)
    out, _ = process.communicate()
    assert process.returncode == 0, out
    assert "MLflow is behind: " in out and "Connection refused; `topk sync " in out and "` fills it in" in out
    check_undisturbed(store, reference)
    assert "MLflow is behind: " in lab.topk("status", "--store", store)[0]
    server.start()
    assert len(tracked(server.uri, ended=True)) < 16
    lab.topk("sync", "small", "--store", store, "--mlflow", server.uri)
    assert tracked(server.uri, ended=True) == Counter(row["key"] for row in rows(store, "small"))
    assert "MLflow is behind" not in lab.topk("status", "--store", store)[0]


def check_second_driver(lab: Any, pid: int, *command: str | Path) -> None:
    """Check that one more driver on the same folder is refused in a line, and that it is told who drives."""
    _, err = lab.topk(*command[:-2], code=2)
    (line,) = (line for line in err.splitlines() if line.startswith("topk: "))
    assert f"is being written by another process: process {pid} on " in line
    assert f"small: driven by process {pid} on " in lab.topk("status", *command[-4:-2])[0]
