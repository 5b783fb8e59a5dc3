"""``cluster.yaml`` without a cloud: its kinds of nodes as processes of one host, up for a study and down after it."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from clusters import Site
from hosts import on_hosts
from labs import rows, until
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID, FAKE_HEAD_NODE_TYPE

pytestmark = on_hosts()

FILE = Path(__file__).parents[2] / "cluster.yaml"
IDLE_MINUTES = 1.0  # a node that has come is asked what it is before it trains, slowly on a busy machine
# Ray's own, which starts a node's processes beside the head's; by its name in Ray it wants a file that no wheel has.
PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
# As `ray up` starts a head: by its second autoscaler, which wants to know which of the provider's nodes it is on.
AUTOSCALER = {
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_FAKE_CLUSTER": "1",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
    "RAY_enable_autoscaler_v2": "1",
}
WATCH = """
import json, sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False)
while True:
    up = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    print(json.dumps(sorted([node.get("CPU", 0), node.get("GPU", 0)] for node in up)), flush=True)
    time.sleep(1)
"""


def without_a_cloud(address: str) -> dict[str, Any]:
    """Return what the file says but for the machines: nodes of a core, and of a GPU that Ray is only told of."""
    config: dict[str, Any] = copy.deepcopy(yaml.safe_load(FILE.read_text()))
    kinds = {name: _small(kind) for name, kind in config["available_node_types"].items()}
    kinds[FAKE_HEAD_NODE_TYPE] = {**kinds.pop(config["head_node_type"]), "max_workers": 0}
    kept = {name: config[name] for name in ("cluster_name", "max_workers", "upscaling_speed")}
    provider = {"type": "external", "module": PROVIDER, "gcs_address": address}
    return {
        **kept,
        "provider": {**provider, "head_node_id": FAKE_HEAD_NODE_ID, "launch_multiple": True},
        "auth": {},
        "available_node_types": kinds,
        "head_node_type": FAKE_HEAD_NODE_TYPE,
        "idle_timeout_minutes": IDLE_MINUTES,
        **{f"{kind}setup_commands": [] for kind in ("", "head_", "worker_")},
        **{f"{kind}_start_ray_commands": [] for kind in ("head", "worker")},
        "initialization_commands": [],
        "file_mounts": {},
        "cluster_synced_files": [],
    }


def _small(kind: dict[str, Any]) -> dict[str, Any]:
    resources = {name: min(amount, 1) for name, amount in kind["resources"].items()}
    return {**kind, "node_config": {}, "resources": {**resources, "object_store_memory": 100_000_000}}


def test_nodes_come_for_a_study_and_go_when_they_idle(site: Site, lab: Any) -> None:
    """A core each for two trials at once, which are held until both nodes are up, and none of the GPUs' kind."""
    head = site.host("head")
    head.run(["ip", "route", "add", "default", "dev", "eth0"])  # by which Ray finds its nodes' address
    address, config = f"{head.address}:6379", lab.folder / "autoscaling.yaml"
    config.write_text(yaml.safe_dump(without_a_cloud(address)))
    environment = site.environment
    site.environment = {**environment, **AUTOSCALER}
    site.head(head, head.address, "--num-cpus", "0", "--autoscaling-config", str(config))
    site.environment = environment
    with (site.folder / "nodes.jsonl").open("w") as file:
        head.start([sys.executable, "-c", WATCH, address], file, **environment)

    def up() -> list[list[list[float]]]:
        lines = (site.folder / "nodes.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("[[")]

    until(lambda: up() == [[[0, 0]]] * len(up()) != [], "the head is up, and nothing else")
    lab.allow(0)
    store = lab.folder / "store"
    command = ["topk", "run", "my_lab:study", "--workers", "2", "--address", address, "--store", store]
    process, log = site.start(head, *command)
    until(lambda: process.poll() is not None or len(lab.noted("held")) == 2, "two trials train at once")
    assert process.poll() is None, log.read_text()
    assert up()[-1] == [[0, 0], [1, 0], [1, 0]]
    lab.allow(10**6)
    assert process.wait() == 0, log.read_text()
    assert {row["status"] for row in rows(store, "small")} <= {"completed", "pruned"}
    until(lambda: up()[-1] == [[0, 0]], "the nodes that came are gone")
    assert max(sum(gpus for _, gpus in nodes) for nodes in up()) == 0
