"""Ray clusters by address: used, left running, too small, or not there at all."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray

from topk_platform import Loss, Model, Recipe, Regime, Study, grid
from topk_platform.errors import ClusterError
from topk_platform.running import capacity, cluster

Rows = Callable[..., list[dict[str, Any]]]
Until = Callable[..., None]


def a_study(**changes: Any) -> Study:
    loss = Loss(changes.pop("loss", "cross_entropy"))
    arms = grid([Regime("plain", "digits")], [Model("mlp")], [loss], k=3, recipe=Recipe(epochs=1))
    return Study("s", arms, topk=(3,), **changes)


@dataclass
class RunningCluster:
    lab: Any
    address: str
    temporary: str

    def answers(self) -> bool:
        host, port = self.address.split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def started(make_lab: Callable[[], Any], until: Until) -> Iterator[RunningCluster]:
    """A cluster that ``ray start --head`` started, with a GPU that it was only told of."""
    lab, port = make_lab(), free_port()
    with tempfile.TemporaryDirectory(prefix="topk", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = [
            sys.executable,
            "-c",
            "from ray.scripts.scripts import main; main()",
            "start",
            "--head",
            "--block",
        ]
        command += [f"--port={port}", "--num-cpus=2", "--num-gpus=1", "--include-dashboard=false"]
        command += ["--node-ip-address=127.0.0.1", f"--temp-dir={folder}", "--disable-usage-stats"]
        command += ["--min-worker-port=20000", "--max-worker-port=29999"]
        head = subprocess.Popen(
            command,
            env=lab.environment(),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        found = RunningCluster(lab, f"127.0.0.1:{port}", folder)
        until(found.answers, "the cluster to start")
        yield found
        head.send_signal(signal.SIGTERM)
        head.wait(timeout=60)


def test_a_cluster_at_an_address_is_used_sent_the_code_and_left_running(
    started: RunningCluster, rows: Rows, tmp_path: Path
) -> None:
    lab, elsewhere = started.lab, tmp_path / "elsewhere"
    elsewhere.mkdir()
    # Only the driver finds the modules by PYTHONPATH: it runs in another folder, and workers have none of it.
    arguments = ("run", "lab:plain", "--store", tmp_path / "s", "--address", started.address)
    lab.topk(*arguments, cwd=elsewhere, PYTHONPATH=str(lab.folder))
    assert {row["status"] for row in rows(tmp_path / "s")} == {"completed"}
    noted = [json.loads(line) for line in lab.folder.joinpath("workers.jsonl").read_text().splitlines()]
    for worker in noted:
        assert all(started.temporary in file and "py_modules_files" in file for file in worker["files"])
        assert {"__init__.py", "parts.py"} <= set(worker["shipped"])
        assert "__pycache__/old.pyc" not in worker["shipped"]
        assert worker["resources"] == {"CPU": 1.0}
    assert started.answers()


def test_auto_finds_it_and_a_gpu_study_asks_for_its_share_of_gpus(
    started: RunningCluster, rows: Rows, tmp_path: Path
) -> None:
    lab = started.lab
    notes = lab.folder / "workers.jsonl"
    notes.unlink(missing_ok=True)
    process = lab.start(
        "run", "lab:on_gpu", "--store", tmp_path, "--address", "auto", RAY_TMPDIR=started.temporary
    )
    out, err = process.communicate(timeout=200)
    assert process.returncode in (0, 1), out + err  # 1 where torch finds no GPU, which Ray was only told of
    assert rows(tmp_path)
    worker = json.loads(notes.read_text().splitlines()[0])
    assert worker["resources"] == {"CPU": 1.0, "GPU": 0.5}
    assert started.answers()


def test_a_cluster_that_is_too_small_is_told_at_once(started: RunningCluster, tmp_path: Path) -> None:
    store = tmp_path / "s"
    _, err = started.lab.topk("run", "lab:too_large", "--store", store, "--address", started.address, code=2)
    assert err.splitlines()[-1].startswith("topk: a trial of lab needs {'CPU': 1, 'GPU': 4} on one node")
    assert not store.exists()


def test_no_cluster_is_one_line_and_nothing_is_written(lab: Any, tmp_path: Path) -> None:
    store = tmp_path / "s"
    address = f"127.0.0.1:{free_port()}"
    _, err = lab.topk("run", "lab:plain", "--store", store, "--address", address, code=2)
    assert err.startswith(f"topk: no Ray cluster answers at '{address}': ")
    assert len(err.splitlines()) == 1
    assert not store.exists()


@pytest.mark.parametrize(
    "address",
    ["", "head", "local", "head:", ":6379", "head:70000", "head:port", "ray://head:10001", "a b:1", "a:1:2"],
)
def test_a_malformed_address_is_refused(address: str) -> None:
    with (
        pytest.raises(ClusterError, match="--address must be host:port"),
        cluster.connected(a_study(), address, None),
    ):
        pytest.fail("connected")


def test_a_host_that_does_not_exist() -> None:
    with (
        pytest.raises(ClusterError, match=r"no Ray cluster answers at 'nowhere\.invalid:6379'"),
        cluster.connected(a_study(), "nowhere.invalid:6379", None),
    ):
        pytest.fail("connected")


def test_auto_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 4)
    with (
        pytest.raises(ClusterError, match="no Ray cluster answers at 'auto'"),
        cluster.connected(a_study(), "auto", None),
    ):
        pytest.fail("connected")


def test_something_else_that_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with (
            pytest.raises(ClusterError, match=f"no Ray cluster answers at '{address}' within 3 s"),
            cluster.connected(a_study(), address, None),
        ):
            pytest.fail("connected")


def test_the_patience_with_an_address_is_below_30_seconds() -> None:
    assert cluster._CONNECT_SECONDS + cluster._ANSWER_SECONDS <= 25


def test_what_modules_import_is_shipped_and_installed_packages_are_not(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(lab.folder))
    monkeypatch.setenv("LAB_FOLDER", str(lab.folder))
    lab.folder.joinpath("single.py").write_text("def loss(): ...")
    names = ["torch.nn:CrossEntropyLoss", "single:loss", "labparts.parts:loss", "math:floor"]
    found = {path.name for name in names for path in cluster._shipped(a_study(loss=name))}
    assert found == {
        "topk_losses",
        "topk_platform",
        "single.py",
        "labparts",
        "lab.py",
    }  # labparts imports lab


def nodes(*resources: dict[str, float]) -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": each} for each in resources] + [
        {"Alive": False, "Resources": {"CPU": 99}}
    ]


def test_a_trial_never_spans_two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: nodes({"CPU": 3}, {"CPU": 5, "GPU": 2}))
    for study, expected in [
        (a_study(), 8),
        (a_study(threads=2), 3),
        (a_study(threads=4), 1),
        (a_study(device="cuda"), 2),
        (a_study(device="cuda", gpus=0.1), 5),
        (a_study(device="cuda", gpus=2, threads=5), 1),
    ]:
        assert capacity.slots(study, None, may_grow=False) == expected
    assert capacity.slots(a_study(), 3, may_grow=False) == 3
    for study in (a_study(threads=6), a_study(device="cuda", gpus=3)):
        for workers, may_grow in ((None, False), (None, True), (2, False)):
            with pytest.raises(ClusterError, match="on one node, and the nodes have"):
                capacity.slots(study, workers, may_grow=may_grow)


def test_a_cluster_that_grows_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    up, asked = [{"CPU": 1.0}], []

    def request(bundles: list[dict[str, float]]) -> None:
        asked.append(bundles)

    monkeypatch.setattr(ray, "nodes", lambda: nodes(*up))
    monkeypatch.setattr(capacity, "request_resources", request)
    monkeypatch.setattr(capacity.time, "sleep", lambda _: up.append({"CPU": 8.0, "GPU": 1.0}))
    assert capacity.slots(a_study(device="cuda"), 5, may_grow=True) == 5
    assert asked == [[{"CPU": 1, "GPU": 1.0}], []]


@pytest.mark.slow
def test_a_lost_node_changes_nothing(
    lab: Any, rows: Rows, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.cluster_utils import Cluster

    lab.topk("run", "lab:slow", "--store", tmp_path / "calm", "--workers", "2")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv(
        "LAB_FOLDER", str(lab.folder)
    )  # nodes give their workers what they had when they started
    two = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = two.add_node(num_cpus=1)
        two.wait_for_nodes()
        process = lab.start("run", "lab:slow", "--store", tmp_path / "stormy", "--address", two.address)
        until(
            lambda: (tmp_path / "stormy" / "lab").exists() and len(rows(tmp_path / "stormy")) >= 2,
            "two trials",
        )
        two.remove_node(second, allow_graceful=False)
        assert process.poll() is None
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
    finally:
        two.shutdown()
    for kind in ("trials", "epochs"):
        assert rows(tmp_path / "stormy", kind=kind) == rows(tmp_path / "calm", kind=kind)
