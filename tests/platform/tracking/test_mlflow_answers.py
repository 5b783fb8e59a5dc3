"""Whether MLflow answers, and what happens where it takes a request and never does."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import mlflow
import pytest
from feeds import runs, start_feed
from made_records import filled
from made_records import make_record as record
from mlflow import MlflowClient
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT
from packaging.version import Version

from topk_platform import Study, UserError
from topk_platform.records.storage.store import Store
from topk_platform.tracking import feed as feed_module
from topk_platform.tracking.feed import Feed, check_tracking, mlflow_of, tracking_uri

pytestmark = pytest.mark.timeout(300)

TAKES_FOLDERS = pytest.mark.skipif(
    Version(mlflow.__version__) < Version("3.17"), reason="MLflow before 3.17 may take a folder of files"
)


class Hanging(BaseHTTPRequestHandler):
    """Answers the question for an experiment, and nothing else."""

    over = threading.Event()

    def do_GET(self) -> None:
        body = json.dumps({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"}).encode()
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.over.wait()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hanging() -> Iterator[str]:
    """The URI of a server that hangs."""
    Hanging.over.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hanging) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        Hanging.over.set()
        server.shutdown()


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own, which it may set and which are as before afterwards."""
    for name in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def a_feed(uri: str, folder: Path, study: Study) -> Feed:
    """A feed that has a trial to write."""
    ended = record(study, 0)
    feed = start_feed(None, filled(folder, study, ended), uri, pause=0.0)
    feed.put(ended)
    return feed


def test_a_server_that_hangs_is_given_one_more_try(
    hanging: str, tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    check_tracking(hanging)
    feed = a_feed(hanging, tmp_path, study)
    assert "timed out" in feed.close().lower()
    assert not feed.is_alive()


def test_a_request_has_seconds_unless_the_user_says_otherwise(
    hanging: str, tmp_path: Path, study: Study
) -> None:
    """And who closes waits no longer than it is told, where nothing is taken meanwhile."""
    assert MLFLOW_HTTP_REQUEST_TIMEOUT.get() > 60
    feed = a_feed(hanging, tmp_path, study)
    while "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ:
        time.sleep(0.01)
    feed.patience = 0.5
    assert feed.close() == "MLflow is behind: it has made no progress for 0.5 s"
    assert MLFLOW_HTTP_REQUEST_TIMEOUT.get() * (1 + MLFLOW_HTTP_REQUEST_MAX_RETRIES.get()) <= 30


@pytest.mark.slow  # MLflow makes a database
def test_a_database_that_is_locked_is_waited_for_in_vain_and_written_later(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tracking_uri(tmp_path)
    MlflowClient(uri)
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        feed = a_feed(uri, tmp_path, study)
        feed.patience = 0.5
        assert feed.close()
        monkeypatch.setattr(feed_module, "_ANSWER_SECONDS", 0.5)
        with pytest.raises(UserError, match=r"mlflow\.db': no answer within 0\.5 s"):
            check_tracking(uri)
        other.execute("ROLLBACK")
    feed.join()
    assert len(runs(uri, "topk.key")) == 1


def test_a_store_whose_path_an_address_of_sqlite_cannot_hold_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"what\?' .* --mlflow"):
        mlflow_of(Store.open(tmp_path / "what?"), None)
    assert mlflow_of(Store.open(tmp_path), None) == tracking_uri(tmp_path)
    assert mlflow_of(Store.open(tmp_path), "none") is None is mlflow_of(Store.open("s3://bucket/runs"), None)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("", "is a variable unset"),
        ("localhost:5000", "Supported URI schemes are: .*'http', 'https'"),
        pytest.param("mlruns", "maintenance mode", marks=TAKES_FOLDERS),
        ("http://127.0.0.1:9", r"\[Errno 111\] Connection refused$"),
        ("sqlite://relative.db", "Invalid SQLite URL"),
        ("sqlite:////proc/runs/mlflow.db", "cannot be written"),
    ],
)
def test_what_does_not_answer_is_one_line(uri: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=f"got {uri!r}: .*{why}") as caught:
        check_tracking(uri)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_server_or_a_database_that_answers_is_good(hanging: str, tmp_path: Path) -> None:
    check_tracking(hanging)  # it answers this one question
    check_tracking(f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}")
    assert list(tmp_path.iterdir()) == []  # which MLflow makes when it is written to
    MlflowClient(tracking_uri(tmp_path)).create_experiment("mine")
    check_tracking(tracking_uri(tmp_path))
