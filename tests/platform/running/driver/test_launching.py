"""What is found out of a cluster before a study runs on it; the cluster is made up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study, run
from topk_platform.errors import StoreError
from topk_platform.records import Ledger, Store
from topk_platform.running.cluster import connecting as cluster
from topk_platform.running.driver.launching import Launch, on_cluster
from topk_platform.running.own_ray.lifeline import Lifeline


def test_a_study_that_is_driven_is_refused_before_a_cluster_is_looked_for(tmp_path: Path) -> None:
    with (
        Ledger.open(Store.open(tmp_path), "s").writing(a_study()),
        pytest.raises(StoreError, match=f"is being written by another process: process {os.getpid()} on "),
    ):
        run(a_study(), store=tmp_path, address="nowhere.invalid:6379", wait=0)


def a_study(**more: Any) -> Study:
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 3, Recipe(1))
    return Study("s", [arm], topk=(1, 3), **more)


def test_a_cluster_is_handed_out_with_its_slots_and_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextmanager
    def connected(*_: object) -> Iterator[cluster.Connection]:
        yield cluster.Connection(4, Lifeline())

    monkeypatch.setattr("ray.cluster_resources", lambda: {"GPU": 2.0})
    monkeypatch.setattr(cluster, "connected", connected)
    launch = Launch(Store.open(tmp_path), mixed=True)
    with on_cluster(a_study(device="cuda", gpus=0.5), launch) as result:
        assert (result.slots, result.gpus, result.environment) == (4, 2.0, None)
