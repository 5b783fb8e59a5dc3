"""A study over hosts of their own: one is cut off with store and MLflow, another is taken away."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from clusters import CREDENTIALS, Site, object_store, tracking_server
from hosts import on_hosts
from labs import check_undisturbed, rows, tracked, until

pytestmark = on_hosts()

CUT_SECONDS = 60.0


def test_a_host_is_cut_off_for_a_minute_and_one_is_taken_away(
    site: Site, lab: Any, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the one cut off, store and MLflow are gone as well; the other one has a successor."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    head, server, far = (site.host(name) for name in ("head", "server", "far"))
    site.tell("three hosts are up: head, server with S3 and MLflow, far")
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
    far.power_off()
    site.tell("far is taken away")
    other = site.host("other")
    site.worker(other, address)
    site.tell("other is brought")
    lab.allow(10**6)
    until(lambda: process.poll() is not None, "the study has ended")
    site.tell("the study has ended")
    assert process.returncode == 0, log.read_text()
    check_undisturbed(store, reference)
    assert tracked(mlflow, ended=True) == Counter(row["key"] for row in rows(store, "small"))
