"""What Ray makes of a study's GPUs: shares, kinds and slices, on nodes whose GPUs Ray was only told of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import ray
import torch
from ray.cluster_utils import Cluster

from topk_platform import Loss, Model, Recipe, Regime, Study, grid
from topk_platform.running.cluster import connecting as cluster
from topk_platform.running.cluster.nodes import slots
from topk_platform.running.cluster.ray_internals import on_loopback
from topk_platform.running.cluster.reaching import Patience

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="its GPUs are not there, and trials on them fail"),
    pytest.mark.timeout(3600),
    pytest.mark.slow,
]


def a_study(**changes: Any) -> Study:
    arms = grid([Regime("r", "digits")], [Model("mlp")], [Loss("cross_entropy")], k=3, recipe=Recipe(1))
    return Study("s", arms, topk=(3,), device="cuda", **changes)


@pytest.fixture(scope="module")
def nodes(visited: Any) -> Iterator[Cluster]:
    """Two nodes, each told of two GPUs: T4 and L4."""
    with on_loopback():
        two = Cluster()
        for kind in ("T4", "L4"):
            more = {"include_dashboard": False} if kind == "T4" else {}
            two.add_node(num_cpus=2, num_gpus=2, resources={f"accelerator_type:{kind}": 1}, **more)
        two.wait_for_nodes(timeout=900)
        yield two
        two.shutdown()


def resources(lab: Any) -> list[dict[str, float]]:
    return [json.loads(line)["resources"] for line in lab.noted("workers.jsonl")]


def test_a_study_stays_on_the_kind_that_it_is_pinned_to(nodes: Cluster, visited: Any) -> None:
    """Its trials fail, for there is no GPU; they do where the kind is."""
    before = len(resources(visited))
    store = ("--store", visited.folder / "pinned", "--address", nodes.address)
    visited.topk("run", "lab:on_gpu", *store, "--mixed", "--accelerator", "L4", code=1)
    result = resources(visited)[before:]
    assert result == [{"CPU": 1.0, "GPU": 0.5, "accelerator_type:L4": 0.001}] * len(result) != []


def test_each_slice_of_mig_is_a_gpu_of_the_machine(visited: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its UUID, which is what a process that was given it sees, and gives to CUDA."""
    slices = ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(slices))

    class Holder:
        def visible(self) -> str:
            import os

            return os.environ["CUDA_VISIBLE_DEVICES"]

    with cluster.connected(a_study(gpus=0.5), None, 4, Patience()):
        assert slots(a_study(gpus=0.5), 4) == 4 and ray.cluster_resources()["GPU"] == 2
        for share, wanted in ((1.0, slices), (0.5, sorted(2 * slices))):
            holders = [ray.remote(num_gpus=share, num_cpus=1)(Holder).remote() for _ in wanted]
            assert sorted(ray.get([holder.visible.remote() for holder in holders])) == wanted
            for holder in holders:
                ray.kill(holder)
