"""What a lab's server offers a study, on a host of :mod:`hosts`: an object store, and MLflow over PostgreSQL."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from hosts import Host

__all__ = ["CREDENTIALS", "object_store", "postgresql", "tracking_server"]

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
_PATIENCE = 300.0  # seconds, of which nothing takes a tenth


def object_store(host: Host, port: int = 9000) -> str:
    """Start an S3 server on a host, and return the URI of a store in a bucket of it."""
    server = host.start([sys.executable, "-m", "moto.server", "--host", host.address, "--port", str(port)])
    endpoint = f"http://{host.address}:{port}"
    _until(lambda: _answers(f"{endpoint}/lab", "PUT"), server, f"an object store at {endpoint}")
    return f"s3://lab/runs?endpoint={endpoint}&region=us-east-1"


def postgresql() -> Path | None:
    """Return the folder of PostgreSQL's programs; None where they, or what Python speaks to them with, are absent."""
    result = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return result[-1] if result and importlib.util.find_spec("psycopg2") else None


def tracking_server(host: Host, port: int = 5000) -> str:
    """Start MLflow's server on a host, over PostgreSQL where it is there, else over sqlite; return its URI."""
    database = _database(host) or f"sqlite:///{host.home}/mlflow.db"
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--backend-store-uri", database]
    command += ["--host", host.address, "--port", str(port), "--allowed-hosts", f"{host.address}:{port}"]
    command += ["--artifacts-destination", f"{host.home}/artifacts"]
    server = host.start(command, cwd=host.home, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")
    uri = f"http://{host.address}:{port}"
    _until(lambda: _answers(f"{uri}/health"), server, f"MLflow at {uri}")
    return uri


def _database(host: Host) -> str | None:
    """Start PostgreSQL on a host, as the user that it wants, and return the URI of a database."""
    if (programs := postgresql()) is None:
        return None
    data, as_user = "/run/postgresql", ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    host.run(["install", "-d", "-o", "postgres", data])
    host.run([*as_user, programs / "initdb", "--auth=trust", "--no-sync", f"{data}/data"])
    server = host.start(
        [*as_user, programs / "postgres", "-D", f"{data}/data", "-k", data, "-h", "127.0.0.1"]
    )
    create = [*as_user, programs / "createdb", "-h", data, "mlflow"]
    _until(lambda: _succeeds(host, create), server, "PostgreSQL")
    return "postgresql+psycopg2://postgres@127.0.0.1/mlflow"


def _succeeds(host: Host, command: list[str | Path]) -> bool:
    return host.start(command).wait() == 0


def _answers(url: str, method: str = "GET") -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _until(condition: Callable[[], bool], server: subprocess.Popen[str], what: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if server.poll() is not None:
            raise RuntimeError(f"{what} ended with code {server.returncode} before it answered")
        if time.monotonic() > end:
            raise RuntimeError(f"waited {_PATIENCE:.0f} s for {what}")
        time.sleep(0.1)
