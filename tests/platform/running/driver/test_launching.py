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
from topk_platform.running.cluster import capacity, machines
from topk_platform.running.cluster import connecting as cluster
from topk_platform.running.cluster.patience import Patience
from topk_platform.running.driver.launching import Launch, on_cluster
from topk_platform.running.estimate.packing import Packing
from topk_platform.running.own_ray.lifeline import Lifeline

GIB = 2**30


def test_a_study_that_is_driven_is_refused_before_a_cluster_is_looked_for(tmp_path: Path) -> None:
    with (
        Ledger.open(Store.open(tmp_path), "s").writing(a_study()),
        pytest.raises(StoreError, match=f"is being written by another process: process {os.getpid()} on "),
    ):
        run(a_study(), store=tmp_path, address="nowhere.invalid:6379", wait=0)


def a_study(**more: Any) -> Study:
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 3, Recipe(1))
    return Study("s", [arm], topk=(1, 3), **more)


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the user is told of a machine with two GPUs, on each of which six trials have room."""

    @contextmanager
    def connected(*_: object) -> Iterator[cluster.Connection]:
        yield cluster.Connection(2, Lifeline())

    def slots(study: Study, workers: int | None, *, may_grow: bool) -> int:
        assert not may_grow
        return workers or int(2 / study.gpu_share)

    def measured(study: Study, trials: object, *, everywhere: bool, patience: Patience) -> Packing:
        assert study.gpus == "auto" and trials == [] and everywhere
        return Packing(6, "r/linear/cross_entropy", 9 * GIB, 80 * GIB)

    monkeypatch.setattr("ray.cluster_resources", lambda: {"GPU": 2.0})
    monkeypatch.setattr(cluster, "connected", connected)
    monkeypatch.setattr(capacity, "slots", slots)
    monkeypatch.setattr(machines, "measured", measured)
    return []


@pytest.mark.parametrize(
    ("given", "workers", "share", "slots", "lines"),
    [
        ({"device": "cuda", "gpus": "auto"}, None, 0.1666, 12, 2),
        ({"device": "cuda", "gpus": "auto"}, 5, 0.1666, 5, 2),
        ({"device": "cuda", "gpus": 0.5}, None, 0.5, 2, 0),
        ({"gpus": "auto"}, None, 1.0, 2, 0),
    ],
)
def test_a_share_that_is_left_open_is_measured_where_trials_are_to_run_on_gpus(
    given: dict[str, Any],
    workers: int | None,
    share: float,
    slots: int,
    lines: int,
    messages: list[str],
    tmp_path: Path,
) -> None:
    patience = Patience(0, messages.append)
    store = Store.open(tmp_path)
    launch = Launch(store, workers=workers, mixed=True, patience=patience)
    with on_cluster(a_study(**given), launch, list) as result:
        assert (result.share, result.slots, result.gpus, result.environment) == (share, slots, 2.0, None)
    assert len(messages) == lines
    if messages:
        assert messages[-1] == "6 trials share a GPU: r/linear/cross_entropy takes 9.0 of 80.0 GiB"
