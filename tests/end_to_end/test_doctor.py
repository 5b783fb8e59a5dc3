"""`topk plan --address` on a cluster of two nodes on which five things are wrong, for real or as a node sees it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ray._private import services
from ray.cluster_utils import Cluster

from topk_platform.running.cluster.ray_internals import on_loopback

OWN = ["unshare", "--user", "--map-root-user", "--mount"]
COMMAND = ("plan", "doctor_lab:study", "--mlflow", "http://127.0.0.1:9", "--address")

PARTS = """
from sklearn.base import BaseEstimator
from torch import nn

def network(shape, classes, head):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))
"""
LAB = """
from topk_platform import Loss, Model, Recipe, Regime, Study, grid

options = {"folder": "birds", "size": 8}
regimes = [Regime("birds", "image_folder", options=options)]
arms = grid(regimes, [Model("doctor_parts:network")], [Loss("cross_entropy")], k=1, recipe=Recipe(epochs=1))
study = Study("birds", arms, topk=(1,))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("unshare") is None or subprocess.run([*OWN, "true"], check=False).returncode != 0,
        reason="this system lets nobody mount a disk of his own",
    ),
]


def write_birds(folder: Path) -> None:
    from torchvision.io import write_png

    images = torch.Generator().manual_seed(0)
    for name in ("jay", "wren"):
        (folder / "birds" / name).mkdir(parents=True)
        for number in range(10):
            pixels = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8, generator=images)
            write_png(pixels, str(folder / "birds" / name / f"{number}.png"))


def package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def broken(folder: Path, lab: Path) -> list[str]:
    """The mounts and variables of a node: its own empty store and data, no Numba."""
    made = {name: folder / name for name in ("numba", "sklearn")}
    for path in made.values():
        path.mkdir()
    for name in ("numba", "sklearn"):
        line = f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n"
        (made[name] / "__init__.py").write_text(line)
    mounts = [
        *(f"mount --bind {made[name]} {package(name)}" for name in ("numba", "sklearn")),
        f"mount -t tmpfs tmpfs {lab / 'data'}",
        f"mount -t tmpfs tmpfs {lab / 'runs'}",
    ]
    return [*OWN, "sh", "-c", f'{" && ".join(mounts)} && exec "$@"', "sh"]


@pytest.fixture(scope="module")
def lab(visited: Any) -> Path:
    folder: Path = visited.folder
    (folder / "doctor_parts.py").write_text(PARTS)
    (folder / "doctor_lab.py").write_text(LAB)
    write_birds(folder / "data")
    (folder / "runs").mkdir()
    return folder


@pytest.fixture(scope="module")
def nodes(visited: Any, lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A sound head, and a node on which everything is wrong."""
    start = services.start_ray_process
    command = broken(tmp_path_factory.mktemp("broken"), lab)

    def apart(line: list[str], *arguments: Any, **keywords: Any) -> Any:
        return start([*command, *line], *arguments, **keywords)

    with on_loopback(), pytest.MonkeyPatch.context() as patch:
        two = Cluster()
        two.add_node(num_cpus=1, include_dashboard=False)
        patch.setattr(services, "start_ray_process", apart)
        two.add_node(num_cpus=1)
        patch.undo()
        two.wait_for_nodes(timeout=600)
        yield two
        two.shutdown()


@pytest.fixture(scope="module")
def findings(visited: Any, lab: Path, nodes: Cluster) -> list[dict[str, Any]]:
    out, _ = visited.topk(*COMMAND, nodes.address, "--json", code=1)
    result: list[dict[str, Any]] = json.loads(out)["findings"]
    return result


def test_each_thing_that_is_wrong_is_reported_with_its_place(
    findings: list[dict[str, Any]], lab: Path
) -> None:
    assert all(finding["remedy"] and "head" not in finding["node"] for finding in findings)
    checks = ["tracking", "code", "data", "store", "same bits"]
    result = {finding["check"]: finding["finding"] for finding in findings}
    assert sorted(finding["check"] for finding in findings) == sorted(checks), findings
    assert {finding["check"] for finding in findings if finding["node"] == "driver"} == {"tracking"}
    assert result["tracking"].startswith("mlflow must be")
    assert result["same bits"].startswith("losses torch, not numba ")
    assert "No module named 'sklearn'" in result["code"]
    assert f"there is no folder {lab / 'data' / 'birds'}" in result["data"]
    assert "the driver's file is missing" in result["store"]
    assert list((lab / "runs").iterdir()) == []


def test_a_run_refuses_all_of_it_in_one_line(visited: Any, lab: Path, nodes: Cluster) -> None:
    _, err = visited.topk("run", "doctor_lab:study", "--mlflow", "none", "--address", nodes.address, code=2)
    line = err.splitlines()[-1]
    assert line.startswith("topk: the cluster cannot train study birds: ")
    assert all(f"{check}, 127.0.0.1 (" in line for check in ("code", "data", "store"))
    assert list((lab / "runs").iterdir()) == []
