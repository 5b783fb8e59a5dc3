"""cluster.yaml, as far as it can be checked without a cloud."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

CONFIG: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "cluster.yaml").read_text())


def test_rays_launcher_takes_it() -> None:
    prepared: dict[str, Any] = prepare_config(CONFIG)
    validate_config(prepared)
    types = prepared["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    assert types["cpu_worker"]["resources"]["CPU"] >= 1
    assert types["gpu_worker"]["resources"]["GPU"] >= 1
    assert all(
        types[name]["min_workers"] == 0 < types[name]["max_workers"] for name in ("cpu_worker", "gpu_worker")
    )


def test_it_installs_this_distribution_and_starts_the_ray_it_installed_with_a_token() -> None:
    (install,) = (line for line in CONFIG["setup_commands"] if "pip install" in line)
    assert re.search(r"topk_studies-\*\.whl\)\[platform\]", install)
    mounts = {"/home/ubuntu/dist": "dist", "/home/ubuntu/.ray/auth_token": "~/.ray/auth_token"}
    assert CONFIG["file_mounts"].items() >= mounts.items()
    lines = CONFIG["head_start_ray_commands"] + CONFIG["worker_start_ray_commands"]
    ours = re.compile(r"~/topk/bin/ray stop|RAY_AUTH_MODE=token ~/topk/bin/ray start ")
    assert all(map(ours.match, lines)) and sum(" start " in line for line in lines) == 2
