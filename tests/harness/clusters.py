"""A lab's cluster on hosts of :mod:`hosts`: Ray by hand, as ``docs/cluster.md`` says, a store and MLflow beside it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hosts import Host, Network
from labs import answers, mlflow_server, until

__all__ = ["CREDENTIALS", "Site", "object_store", "tracking_server"]

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}

_DEPLOY = Path(__file__).parents[2] / "deploy"
_BIN = Path(sys.executable).parent
_TOKEN = "0123456789abcdef" * 4
# A raylet gives its agents a quarter of a minute to start, which beside other tests on a few cores they may exceed;
# start-worker.sh tries again by itself.
_TRIES = 10
_MEMORY = ["--object-store-memory", "100000000"]
_ENVIRONMENT = {
    **CREDENTIALS,
    "OMP_NUM_THREADS": "1",
    "RAY": str(_BIN / "ray"),
    "RAY_AUTH_MODE": "token",
    # Raylets give their agents and workers so long to start, which beside other programs may take minutes.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_worker_niceness": "0",
    "TOPK_REPORT": "off",
}


@dataclass
class Site:
    """Hosts of a lab with Ray on them.

    Args:
        net: Their network.
        folder: Where logs lie, and in ``timeline.txt`` what happened when.
        lab: The user's folder, which all hosts share.
        environment: What is told to all that runs on a host.
    """

    net: Network
    folder: Path
    lab: Path
    environment: Mapping[str, str]
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.environment = {**self.environment, **_ENVIRONMENT}

    def tell(self, what: str) -> None:
        """Note what has happened."""
        with (self.folder / "timeline.txt").open("a") as file:
            file.write(f"{time.monotonic() - self.began:6.1f} s  {what}\n")

    def host(self, name: str) -> Host:
        """Switch on a host whose user has the cluster's token."""
        host = self.net.host(name)
        host.run(
            ["sh", "-c", f"mkdir -p ~/.ray && printf {_TOKEN} > ~/.ray/auth_token && chmod -R go= ~/.ray"]
        )
        return host

    def head(self, host: Host, *arguments: str) -> None:
        """Start the cluster's head on a host; the arguments are ``start-head.sh``'s."""
        command = [_DEPLOY / "start-head.sh", *arguments, *_MEMORY]
        for _ in range(_TRIES - 1):
            with suppress(RuntimeError):  # its agents may start too slowly on a busy machine
                host.run(command, **self.environment)
                return
            host.run([_BIN / "ray", "stop", "--force"], **self.environment)
        host.run(command, **self.environment)

    def worker(self, host: Host, head: str) -> None:
        """Let a host join, for one trial at a time."""
        with (self.folder / f"{host.name}.log").open("w") as log:
            command = [_DEPLOY / "start-worker.sh", head, "--num-cpus", "1", *_MEMORY]
            host.start(command, log, **self.environment)

    def start(self, host: Host, *command: str | Path) -> tuple[subprocess.Popen[str], Path]:
        """Start one of the environment's commands on a host, in the lab's folder; return it and its log."""
        log = self.folder / f"{command[0]}.log"
        with log.open("w") as file:
            return host.start([_BIN / command[0], *command[1:]], file, self.lab, **self.environment), log


def object_store(host: Host, port: int = 9000) -> str:
    """Start an S3 server on a host, and return the URI of a store in a bucket of it."""
    server = host.start([sys.executable, "-m", "moto.server", "--host", host.address, "--port", str(port)])
    endpoint = f"http://{host.address}:{port}"
    until(lambda: answers(f"{endpoint}/lab", "PUT"), f"an object store at {endpoint} answers", server)
    return f"s3://lab/runs?endpoint={endpoint}&region=us-east-1"


def tracking_server(host: Host, port: int = 5000) -> str:
    """Start MLflow's server on a host, and return its URI."""
    command = [*mlflow_server(host.address, port, host.home), "--allowed-hosts", f"{host.address}:{port}"]
    server = host.start(command, cwd=host.home, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")
    uri = f"http://{host.address}:{port}"
    until(lambda: answers(f"{uri}/health"), f"MLflow at {uri} answers", server)
    return uri
