"""The fallbacks for private names of Ray that a version may lack."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import ray
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, RayTaskError

from topk_platform.running.cluster import ray_internals
from topk_platform.running.cluster.ray_internals import reason_in

PLATFORM = Path(ray_internals.__file__).parents[1]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray that has none of these names."""

    def import_module(name: str) -> ModuleType:
        if name.startswith("ray."):
            raise ModuleNotFoundError(name)
        return importlib.import_module(name)

    monkeypatch.setattr(ray_internals, "import_module", import_module)


def names(path: Path) -> set[str]:
    """The modules that a file imports, and the dotted names in its code."""
    tree = ast.parse(path.read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return modules | {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_nothing_else_reaches_into_ray() -> None:
    result = {
        f"{path.relative_to(PLATFORM)}: {name}"
        for path in PLATFORM.rglob("*.py")
        if path.name != "ray_internals.py" and re.search(r"\bray\b", path.read_text())
        for name in names(path)
        if name.startswith(("ray._", "ray.tune.execution", "ray.train._"))
    }
    assert not result


def test_this_ray_has_what_is_replaced_and_gets_it_back() -> None:
    constants = importlib.import_module("ray._private.ray_constants")
    node = importlib.import_module("ray._private.node").Node
    before = constants.ENABLE_RAY_CLUSTER, node.start_monitor
    with ray_internals.on_loopback():
        assert not constants.ENABLE_RAY_CLUSTER and node.start_monitor is not before[1]
        assert os.environ[ray_internals._CLUSTER_VARIABLE] == "0"
    assert (constants.ENABLE_RAY_CLUSTER, node.start_monitor) == before
    assert ray_internals._CLUSTER_VARIABLE not in os.environ


def test_aws_keys_are_not_sent_to_workers() -> None:
    cache = importlib.import_module("ray.tune.execution.class_cache")
    assert any(name.startswith("AWS_") for name in cache.ENV_VARS_TO_PROPAGATE)
    with ray_internals.without_keys():
        assert not any(name.startswith("AWS_") for name in cache.ENV_VARS_TO_PROPAGATE)


@pytest.mark.usefixtures("without")
def test_a_ray_without_these_names_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shut: list[bool] = []
    monkeypatch.setattr(ray, "shutdown", lambda: shut.append(True))
    for name in ("on_loopback", "messages_on_stderr", "without_keys"):
        with getattr(ray_internals, name)():  # the variable counts for processes that import Ray meanwhile
            assert (ray_internals._CLUSTER_VARIABLE in os.environ) == (name == "on_loopback")
    ray_internals.leave()
    assert shut == [True]


def test_an_actor_that_was_cancelled_is_shown_with_the_reason_before_it() -> None:
    why = "The actor is dead because its owner has died."
    context = ActorDiedErrorContext(actor_id=b"0123456789abcdef", error_message=why, never_started=True)
    assert why in reason_in(str(ActorDiedError(context))).replace("\n", " ")


def test_the_rays_of_this_machine_are_those_of_its_raylets(tmp_path: Path) -> None:
    """Other processes of a Ray have its address in their command lines, too, and may stay longer than it."""
    address = "10.0.0.1:6390"
    for name, known in (("raylet", True), ("agent", False)):
        (tmp_path / name).symlink_to(sys.executable)
        waits = [tmp_path / name, "-c", "print(flush=True); input()", f"--gcs-address={address}"]
        with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert (address in ray_internals.known_heads()) == known
            process.kill()
    assert address not in ray_internals.known_heads()


def test_what_ray_guesses_is_left_out() -> None:
    why = "The actor is dead because its worker process has died."
    guesses = "Some common causes include: (1) the process was killed by the OOM killer"
    context = ActorDiedErrorContext(actor_id=b"0123456789abcdef", error_message=f"{why} {guesses}")
    assert reason_in(str(ActorDiedError(context))).endswith(why)


def test_a_task_that_raised_is_shown_with_its_exception_alone() -> None:
    text = "Traceback (most recent call last):\n  File 'a.py', line 1\nOSError: first\n\nThe above exception was the "
    text += "direct cause of the following exception:\n\nray::f() (pid=7)\n  File\nValueError: two\nlines"
    assert reason_in(str(RayTaskError("f", text, ValueError("two\nlines")))) == "ValueError: two lines"


def test_nothing_is_a_reason_that_is_not_known_and_a_long_one_is_cut() -> None:
    assert reason_in("") == reason_in("\n\n") == "no reason is known"
    assert reason_in("ValueError: " + "x" * 1000) == "ValueError: " + "x" * 588
