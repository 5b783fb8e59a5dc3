"""A study over hosts of their own, one of which is cut off with store and MLflow, and one taken away for good."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, Network, network, refusal
from mlflow import MlflowClient
from services import CREDENTIALS, object_store, tracking_server

Rows = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]

pytestmark = [
    pytest.mark.skipif(bool(refusal()), reason=refusal() or "hosts can be made"),
    pytest.mark.timeout(3600),
    pytest.mark.slow,
]

DEPLOY = Path(__file__).parents[2] / "deploy"
RAY = Path(sys.executable).with_name("ray")
CUT_SECONDS = 60.0
TOKEN = "0123456789abcdef" * 4
TOPK = "from topk_platform.cli import main; main()"


@dataclass
class Site:
    """Hosts of a lab with Ray on them, started as ``docs/cluster.md`` says.

    Args:
        net: Their network.
        lab: The user's modules, in a folder that they share.
        until: Waits for a condition.
        folder: Where the logs are.
    """

    net: Network
    lab: Any
    until: Until
    folder: Path
    began: float = field(default_factory=time.monotonic)

    @property
    def environment(self) -> dict[str, str]:
        """What all that runs on a host is told."""
        quiet = {"RAY_AUTH_MODE": "token", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
        quiet["RAY_raylet_start_wait_time_s"] = "600"  # four of them start on a few cores, beside other tests
        return {**self.lab.environment, **CREDENTIALS, **quiet, "TOPK_REPORT": "off", "RAY": str(RAY)}

    def tell(self, what: str) -> None:
        """Note what has happened, for the timeline in the documentation."""
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    def host(self, name: str) -> Host:
        """Switch on a host that has the cluster's token."""
        host = self.net.host(name)
        host.run(["sh", "-c", f"mkdir -p {host.home}/.ray && printf {TOKEN} > {host.home}/.ray/auth_token"])
        return host

    def head(self, host: Host) -> str:
        """Start the cluster's head on a host, which trains nothing; return its address."""
        memory = ["--object-store-memory", "100000000"]
        command = [DEPLOY / "start-head.sh", host.address, "--num-cpus", "0", "--include-dashboard", "false"]
        host.run([*command, *memory], **self.environment)
        return f"{host.address}:6379"

    def worker(self, host: Host, head: str) -> None:
        """Let a host join, for one trial at a time."""
        memory = ["--object-store-memory", "100000000"]
        with (self.folder / f"{host.name}.log").open("w") as log:
            command = [DEPLOY / "start-worker.sh", head, "--num-cpus", "1", *memory]
            host.start(command, log, **self.environment)

    def topk(self, host: Host, *arguments: str | Path, log: Path) -> Any:
        """Start the command on a host, in the lab's folder."""
        with log.open("w") as file:
            command = [sys.executable, "-c", TOPK, *arguments]
            return host.start(command, file, self.lab.folder, **self.environment)


@pytest.fixture
def site(lab: Any, until: Until, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "hosts").mkdir()
    with network(tmp_path / "hosts", lab.folder) as net:
        yield Site(net, lab, until, tmp_path)


def tracked(uri: str) -> Counter[str]:
    """Return how many ended runs MLflow has of each trial."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("small")
    runs = client.search_runs([experiment.experiment_id], max_results=1000) if experiment else []
    tags = (run.data.tags for run in runs if run.info.status != "RUNNING")
    return Counter(tag["topk.key"] for tag in tags if "topk.key" in tag)


def test_a_host_is_cut_off_for_a_minute_and_one_is_taken_away(
    site: Site,
    lab: Any,
    reference: Any,
    until: Until,
    rows: Rows,
    check_undisturbed: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the host that is cut off, store and MLflow are gone as well; the one taken away had a slow link."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    head, server, far = (site.host(name) for name in ("head", "server", "far"))
    far.slow("50mbit")
    site.tell("three hosts are up: head, server with S3 and MLflow, far behind 50 Mbit/s")
    store, mlflow = object_store(server), tracking_server(server)
    address = site.head(head)
    for host in (server, far):
        site.worker(host, address)
    site.tell("Ray is started on all of them")

    log = site.folder / "driver.log"
    lab.allow(1)
    command = ["run", "my_lab:study", "--json", "--checkpoints", "0", "--workers", "2", "--address", address]
    process = site.topk(head, *command, "--store", store, "--mlflow", mlflow, log=log)

    def wait(condition: Callable[[], bool], what: str) -> None:
        until(lambda: process.poll() is not None or condition(), what)
        assert process.poll() is None, f"it ended before {what}: {log.read_text()}"
        site.tell(what)

    wait(lambda: len(lab.noted("held")) == 2, "a trial has ended, and one is held on either host")
    cut = time.monotonic()
    site.net.cut(server)
    site.tell("server is cut off")
    lab.allow(3)
    wait(lambda: log.read_text().count('"again"') >= 1, "the trial on server is given up for lost")
    time.sleep(max(0.0, cut + CUT_SECONDS - time.monotonic()))
    site.net.mend(server)
    site.tell("server is back")
    wait(lambda: len(rows(store, "small")) >= 3, "two more trials have ended")
    far.power_off()
    site.tell("far is taken away")
    site.worker(site.host("other"), address)
    site.tell("other is brought")
    lab.allow(10**6)
    until(lambda: process.poll() is not None, "the study has ended")
    site.tell("the study has ended")
    assert process.returncode == 0, log.read_text()
    check_undisturbed(store, reference)
    assert tracked(mlflow) == Counter(row["key"] for row in rows(store, "small"))
