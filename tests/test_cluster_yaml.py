"""cluster.yaml, as far as it can be checked without a cloud."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

FILE = Path(__file__).parents[1] / "cluster.yaml"


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return loaded


def check(config: dict[str, Any]) -> dict[str, Any]:
    prepared: dict[str, Any] = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    return prepared


def test_rays_launcher_takes_it(config: dict[str, Any]) -> None:
    prepared = check(config)
    types = prepared["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    assert types["cpu_worker"]["resources"]["CPU"] >= 1
    assert types["gpu_worker"]["resources"]["GPU"] >= 1
    assert all(
        types[name]["min_workers"] == 0 < types[name]["max_workers"] for name in ("cpu_worker", "gpu_worker")
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("head_node_tipe", "head"), ("head_node_type", "nobody"), ("provider", {"type": "nimbus"})],
)
def test_the_check_would_find_a_mistake(config: dict[str, Any], key: str, value: object) -> None:
    with pytest.raises(Exception, match=r"head_node_tipe|head_node_type|nimbus"):
        check({**config, key: value})


def test_it_installs_this_distribution_and_starts_the_ray_it_installed(config: dict[str, Any]) -> None:
    (install,) = (line for line in config["setup_commands"] if "pip install" in line)
    assert re.search(r"topk_studies-\*\.whl\)\[platform\]", install)
    assert config["file_mounts"]["/home/ubuntu/dist"] == "dist"
    for line in config["head_start_ray_commands"] + config["worker_start_ray_commands"]:
        assert re.match(r"(RAY_AUTH_MODE=token )?~/topk/bin/ray (start|stop)", line)


def test_every_node_asks_for_the_token(config: dict[str, Any]) -> None:
    assert config["file_mounts"].items() >= {"/home/ubuntu/.ray/auth_token": "~/.ray/auth_token"}.items()
    starts = [
        line
        for line in config["head_start_ray_commands"] + config["worker_start_ray_commands"]
        if " start" in line
    ]
    assert len(starts) == 2
    assert all(line.startswith("RAY_AUTH_MODE=token ") for line in starts)


def test_its_comments_name_options_that_exist() -> None:
    from topk_platform.cli.app import load_command

    known = {option for parameter in load_command("run").params for option in parameter.opts}
    named = {"--address", "--workers", "--store", "--mlflow"}
    assert named <= known
    assert all(option in FILE.read_text() for option in named)
