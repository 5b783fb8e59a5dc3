"""A Ray cluster by its address: joined, sent the code, outlived by a study where a node is lost, and left running."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from labs import IN_PROC, check_loopback, check_undisturbed, rows, until
from ray.cluster_utils import Cluster

from topk_platform.errors import ClusterError
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster import connecting as cluster
from topk_platform.running.cluster import nodes as machines
from topk_platform.running.cluster import reaching
from topk_platform.running.cluster.ray_internals import on_loopback
from topk_platform.running.cluster.reaching import Patience
from topk_platform.training import environment
from topk_studies import digits

pytestmark = [*IN_PROC, pytest.mark.slow]

# A node's workers hang for as long as its raylet, which starts them, is there.
HANGS = """
import os, sys, time
if any("default_worker.py" in word for word in sys.orig_argv):
    raylet = os.getppid()
    while os.getppid() == raylet:
        time.sleep(0.1)
    os._exit(1)
"""


@pytest.fixture(scope="module")
def nodes(visited: Any) -> Iterator[Cluster]:
    """Two nodes on ports that are free, the first with a GPU that it was only told of."""
    noticing = {
        "health_check_period_ms": 1000
    }  # else a node that is lost is noticed after a quarter of a minute
    with on_loopback():
        two = Cluster()
        two.add_node(num_cpus=1, num_gpus=1, include_dashboard=False, _system_config=noticing)
        two.add_node(num_cpus=1)
        two.wait_for_nodes(timeout=900)
        yield two
        two.shutdown()


@dataclass(frozen=True)
class Joined:
    """What was seen of a run of ``my_lab:study`` whose second node was lost, each node in the middle of a training."""

    store: Path
    listening: list[tuple[str, str]]
    workers: list[dict[str, Any]]
    steps: int
    output: str


@pytest.fixture(scope="module")
def joined(nodes: Cluster, visited: Any, tmp_path_factory: pytest.TempPathFactory) -> Joined:
    store, other = tmp_path_factory.mktemp("joined"), tmp_path_factory.mktemp("other")
    # The driver alone finds the modules by PYTHONPATH: it runs in another folder, and workers have none of it.
    paths = os.pathsep.join([str(visited.folder), os.environ.get("PYTHONPATH", "")])
    process = visited.start_held(1, store, "--address", nodes.address, cwd=other, PYTHONPATH=paths)
    held, listening = {int(pid) for pid in visited.noted("held")}, visited.listening()
    nodes.remove_node(*nodes.worker_nodes, allow_graceful=False)
    until(lambda: not held <= visited.running().keys(), "the node's worker is gone", process)
    visited.allow(10**6)
    output = "".join(process.communicate())
    assert process.returncode == 0, output
    workers = [json.loads(line) for line in visited.noted("workers.jsonl")]
    return Joined(store, listening, workers, len(visited.noted("steps")), output)


def test_a_lost_node_changes_nothing(joined: Joined, reference: Any) -> None:
    for kind in ("trials", "epochs"):
        assert rows(joined.store, "small", kind) == rows(reference.store, "small", kind)
    assert joined.steps == reference.steps + 1  # the step in which the lost training was held
    assert "tried again 1" in joined.output


def test_a_node_that_is_lost_before_it_answers_is_left_out(
    joined: Joined, nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers hang while they start, so that it is still asked when it is lost."""
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        node = nodes.add_node(num_cpus=1)
    messages = list[str]()

    def report(line: str) -> None:
        messages.append(line)
        if line.startswith("waiting for ") and len(nodes.worker_nodes) > 0:
            nodes.remove_node(node, allow_graceful=False)

    with cluster.connected(digits(), nodes.address, None, Patience(0)):
        store = Store.open(tmp_path)
        assert machines.check_nodes(digits(), store, Patience(say=report)) == environment("cpu")
    waiting, left_out = messages
    assert waiting.endswith(" to answer")
    assert left_out.startswith("Note: node 127.0.0.1 (") and "was lost before it answered" in left_out


def test_a_raylet_that_is_killed_changes_nothing(
    joined: Joined, nodes: Cluster, visited: Any, reference: Any, tmp_path: Path
) -> None:
    """As by a system that is out of memory: the node's other processes are there, and nothing answers for it."""
    node = nodes.add_node(num_cpus=1)
    held, begun, steps = (len(visited.noted(name)) for name in ("held", "begun", "steps"))
    process = visited.start_held(begun + 1, tmp_path, "--address", nodes.address)
    pids = {int(pid) for pid in visited.noted("held")[held:]}
    (raylet,) = node.all_processes["raylet"]
    raylet.process.kill()
    raylet.process.wait()  # its workers take a zombie for their living parent
    until(lambda: not pids <= visited.running().keys(), "the node's worker is gone", process)
    visited.allow(10**6)
    output = "".join(process.communicate())
    assert process.returncode == 0, output
    check_undisturbed(tmp_path, reference)
    assert "tried again 1" in output
    assert len(visited.noted("steps")) - steps == reference.steps + 1


def test_it_is_sent_the_code(joined: Joined) -> None:
    for worker in joined.workers:
        assert all(
            os.environ["RAY_TMPDIR"] in file and "py_modules_files" in file for file in worker["files"]
        )
        assert {"__init__.py", "parts.py"} <= set(worker["shipped"])
        assert "__pycache__/old.pyc" not in worker["shipped"]
        assert worker["resources"] == {"CPU": 1.0}


def test_on_loopback_all_of_it_stays_there(joined: Joined) -> None:
    check_loopback(joined.listening)


def test_auto_finds_it_and_a_gpu_study_asks_for_its_share_of_gpus(
    joined: Joined, nodes: Cluster, visited: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine where nothing else runs."""
    monkeypatch.setattr(reaching, "known_heads", lambda: {nodes.address})
    code = 0 if torch.cuda.is_available() else 1  # Ray was only told of a GPU
    arguments = ("run", "lab:on_gpu", "--store", tmp_path, "--address", "auto")
    _, err = visited.topk(*arguments, "--mixed", code=code)  # the nodes are not asked for their GPU's model
    assert f"joined the Ray cluster at {nodes.address}\n" in err
    assert rows(tmp_path)
    worker = json.loads(visited.noted("workers.jsonl")[-1])
    assert worker["resources"] == {"CPU": 1.0, "GPU": 0.5}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a GPU that is not there")
def test_a_gpu_that_torch_cannot_use_is_reported_before_anything_starts(
    joined: Joined, nodes: Cluster, visited: Any, tmp_path: Path
) -> None:
    _, err = visited.topk("run", "lab:on_gpu", "--store", tmp_path / "s", "--address", nodes.address, code=2)
    text = "Ray counts 1 here, and torch can use none: "
    assert err.splitlines()[-1].startswith(
        f"topk: the cluster cannot train study lab: gpus, 127.0.0.1 (head): {text}"
    )
    out, _ = visited.topk(
        "plan", "lab:on_gpu", "--store", tmp_path / "s", "--address", nodes.address, "--json", code=1
    )
    (result,) = (finding for finding in json.loads(out)["findings"] if finding["check"] == "gpus")
    assert result["node"] == "127.0.0.1 (head)" and result["finding"].startswith(text)
    assert not (tmp_path / "s").exists()


def test_one_with_another_ray_is_reported_before_anything_starts(
    nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that asks first takes its own Ray for another; Ray itself then refuses the cluster."""
    (tmp_path / "sitecustomize.py").write_text("import ray\nray.__version__ = '2.59.9'\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (result,) = machines.check_cluster(digits(), nodes.address, tmp_path / "s", None, None, Patience(0))
    assert result.check == "cluster"
    assert all(
        text in result.finding for text in ("Version mismatch", f"Ray: {ray.__version__}", "Ray: 2.59.9")
    )
    with pytest.raises(ClusterError) as caught, cluster.connected(digits(), nodes.address, None, Patience()):
        pytest.fail("joined")
    assert str(caught.value) == result.finding
