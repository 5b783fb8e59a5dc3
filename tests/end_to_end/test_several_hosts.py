"""A study over hosts of their own: one is cut off with store and MLflow, others are behind links that lose packets."""

from __future__ import annotations

import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from clusters import Site
from hosts import Host, lossless, network
from labs import ON_HOSTS, check_undisturbed, rows, tracked, until
from services import CREDENTIALS, object_store, tracking_server

pytestmark = ON_HOSTS

CUT_SECONDS = 60.0
LOSSLESS = lossless()
RATE, PERCENT = "5mbit", 0 if LOSSLESS else 3
ECHO = """
import socket
with socket.create_server(("", 9000)) as server, server.accept()[0] as link, link.makefile("rwb") as file:
    file.write(file.read())
"""
LINK = f"5 Mbit/s with {PERCENT} % of packets lost either way"


@pytest.fixture
def site(lab: Any, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "hosts").mkdir()
    with network(tmp_path / "hosts", lab.folder) as net:
        yield Site(net, tmp_path, lab.folder, lab.environment)


def connection(address: str, port: int) -> socket.socket:
    """Connect as soon as something listens."""
    while True:
        with suppress(OSError):
            return socket.create_connection((address, port))
        time.sleep(0.05)


def check_lossy(host: Host) -> None:
    """Check that a host's link has lost packets on their way to it and from it, where links can."""
    assert not PERCENT or min(host.lost()) > 0


@pytest.mark.skipif(bool(LOSSLESS), reason=LOSSLESS or "links can lose packets")
def test_what_a_link_loses_is_sent_again(tmp_path: Path) -> None:
    """A megabyte is 700 packets and more: with so many, a link loses none in one run of 10⁹."""
    sent = bytes(range(256)) * 4096
    with network(tmp_path) as net:
        host = net.host("far")
        host.slow("50mbit", 3)
        host.start([sys.executable, "-c", ECHO])
        with connection(host.address, 9000) as link:
            link.sendall(sent)
            link.shutdown(socket.SHUT_WR)
            assert link.makefile("rb").read() == sent
        assert min(host.lost()) > 0


def test_a_host_is_cut_off_for_a_minute_and_one_is_taken_away(
    site: Site, lab: Any, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the one cut off, store and MLflow are gone as well; the one taken away and its successor have bad links."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    head, server, far = (site.host(name) for name in ("head", "server", "far"))
    far.slow(RATE, PERCENT)
    site.tell(f"three hosts are up: head, server with S3 and MLflow, far behind {LINK}")
    store, mlflow = object_store(server), tracking_server(server)
    address = f"{head.address}:6379"
    site.head(head, head.address, "--num-cpus", "0", "--include-dashboard", "false")
    for host in (server, far):
        site.worker(host, address)
    site.tell("Ray is started on all of them")

    lab.allow(1)
    command = ["topk", "run", "my_lab:study", "--json", "--checkpoints", "2", "--workers", "2"]
    process, log = site.start(head, *command, "--address", address, "--store", store, "--mlflow", mlflow)

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
    # A trial that could not write its checkpoint meanwhile is tried again as well, and held once more.
    wait(lambda: len(lab.noted("held")) >= 4, "server trains again: a trial is held on either host")
    check_lossy(far)
    far.power_off()
    site.tell("far is taken away")
    other = site.host("other")
    other.slow(RATE, PERCENT)
    site.worker(other, address)
    site.tell("other is brought, behind a link like far's")
    lab.allow(10**6)
    until(lambda: process.poll() is not None, "the study has ended")
    site.tell("the study has ended")
    assert process.returncode == 0, log.read_text()
    check_lossy(other)
    check_undisturbed(store, reference)
    assert tracked(mlflow, ended=True) == Counter(row["key"] for row in rows(store, "small"))
