"""What a lab's server offers a study, on a host of :mod:`hosts`: an object store, and MLflow over PostgreSQL."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from hosts import Host
from labs import answers, until

__all__ = ["CREDENTIALS", "object_store", "postgresql", "tracking_server"]

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


def object_store(host: Host, port: int = 9000) -> str:
    """Start an S3 server on a host, and return the URI of a store in a bucket of it."""
    server = host.start([sys.executable, "-m", "moto.server", "--host", host.address, "--port", str(port)])
    endpoint = f"http://{host.address}:{port}"
    until(lambda: answers(f"{endpoint}/lab", "PUT"), f"an object store at {endpoint} answers", server)
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
    until(lambda: answers(f"{uri}/health"), f"MLflow at {uri} answers", server)
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
    until(lambda: _succeeds(host, create), "PostgreSQL answers", server)
    return "postgresql+psycopg2://postgres@127.0.0.1/mlflow"


def _succeeds(host: Host, command: list[str | Path]) -> bool:
    return host.start(command).wait() == 0
