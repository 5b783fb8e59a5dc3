"""What a machine finds wrong with itself, asked here; on real nodes: end_to_end/test_doctor.py."""

from __future__ import annotations

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from topk_platform import Arm, Float, Loss, Model, Recipe, Regime
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.node_facts import Finding, Question, examine, fingerprint, grouped
from topk_platform.training import environment
from topk_platform.versions import loaded_version

RATE = {"learning_rate": Float(0.01, 1)}
BIRDS = Regime("birds", "image_folder", options={"folder": "birds", "size": 8})
NVIDIA = {"torch": "2.15.0", "machine": "H200", "losses": "triton"}


def an_arm(regime: Regime | None = None, network: str = "linear") -> Arm:
    loss = Loss("cross_entropy", RATE, {"learning_rate": 0.1})
    return Arm(regime or Regime("r", "digits"), Model(network), loss, 1, Recipe(1))


def code(*arms: Arm) -> dict[str, str]:
    return {arm.name: loaded_version(arm) for arm in arms}


def about(*arms: Arm, **more: Any) -> Question:
    return Question(arms, code(*arms), "", {arm.name: fingerprint(arm, "") for arm in arms}, node="n", **more)


def said(question: Question) -> list[tuple[str, str]]:
    findings = examine(question).findings
    assert all(item.node == "n" and item.remedy for item in findings)
    return [(item.check, item.finding) for item in findings]


def test_a_sound_machine_says_nothing_but_what_its_bits_depend_on() -> None:
    answer = examine(about(an_arm()))
    assert (answer.findings, answer.environments) == ([], [environment("cpu")])


@pytest.mark.parametrize(
    ("changes", "check", "named"),
    [
        ({"arms": [an_arm(network="no_such_lab:net")]}, "code", "no_such_lab"),
        ({"code": {an_arm().name: "engine 0"}}, "code", "engine: version 0, now "),
        ({"fingerprints": {an_arm().name: "f1"}}, "data", ", the driver's is f1"),
        (
            {"arms": [an_arm(BIRDS)], "code": code(an_arm(BIRDS)), "data": "/nowhere"},
            "data",
            "/nowhere/birds",
        ),
        ({"store": Store.open("/nowhere"), "mark": "t"}, "store", "the driver's file is missing"),
        ({"store": Store.open("/proc"), "mark": "version"}, "store", "cannot be written"),
    ],
)
def test_what_is_wrong_is_reported_under_its_check(changes: dict[str, Any], check: str, named: str) -> None:
    result = said(replace(about(an_arm()), **changes))
    assert {one for one, _ in result} == {check} and any(named in text for _, text in result)


def test_all_that_is_wrong_is_reported_at_once(tmp_path: Path) -> None:
    arms = [an_arm(BIRDS), an_arm(replace(BIRDS, name="jays", options={"folder": "jays", "size": 8}))]
    question = Question(
        arms, code(*arms), str(tmp_path), {}, store=Store.open("/nowhere"), mark="t", node="n"
    )
    result = said(question)
    assert [check for check, _ in result] == ["data", "data", "store"]


def test_a_store_is_seen_and_nothing_is_left(tmp_path: Path, bucket: str) -> None:
    for store in (Store.open(tmp_path), Store.open(bucket)):
        store.create("token", b"")
        assert said(about(store=store, mark="token")) == []
        assert store.files() == ["token"]


def test_what_is_the_same_on_several_machines_is_said_once() -> None:
    findings = [
        Finding.of("code", "a", "old"),
        Finding.of("data", "a", "gone"),
        Finding.of("data", "b", "gone"),
    ]
    result = [(item.check, nodes) for item, nodes in grouped(findings).items()]
    assert result == [("code", ["a"]), ("data", ["a", "b"])]


# GPUs, by stand-ins


def program(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IEXEC)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that goes first in the path, in which this process's Python is looked for."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def gpus(counted: float) -> tuple[list[str], list[Any]]:
    answer = examine(about(device="cuda", gpus=counted))
    return [one.finding for one in answer.findings], [*answer.environments]


def test_gpus_are_those_that_torch_can_use(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "python", f"[ -z \"${{CUDA_VISIBLE_DEVICES+x}}\" ] && echo '{json.dumps([NVIDIA])}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as Ray leaves it to a process that asked for none
    assert gpus(1) == ([], [NVIDIA])
    assert gpus(2) == (["Ray counts 2 here, and torch finds 1"], [NVIDIA])


def test_each_slice_of_mig_is_looked_at_by_a_process_of_its_own(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "python", 'echo "[{\\"machine\\": \\"$CUDA_VISIBLE_DEVICES\\"}]"')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    assert gpus(2) == ([], [{"machine": "MIG-a"}, {"machine": "MIG-b"}])


def test_a_broken_driver_is_reported(programs: Path) -> None:
    program(programs, "python", "echo 'driver too old' >&2; exit 1")
    assert gpus(1) == (["Ray counts 1 here, and torch can use none: driver too old"], [])


TORCH = """
from types import SimpleNamespace
def zeros(*_, device):
    if device[-1] in "{filled}":
        raise RuntimeError("CUDA {error}")
cuda = SimpleNamespace(device_count=lambda: 2, get_device_name="H200 {{}}".format)
"""


@pytest.mark.parametrize(
    ("error", "devices"),
    [
        ("out of memory. Tried to allocate 2 MiB", ["H200 0", "H200 1"]),
        ("error: CUDA-capable device(s) is/are busy or unavailable", ["H200 0", "H200 1"]),
        ("error: uncorrectable ECC error", []),
    ],
)
def test_a_gpu_that_others_fill_is_one_that_works(
    error: str, devices: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Studies of others train on it; a broken one is not taken."""
    package = tmp_path / "topk_platform" / "training"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text("def environment(device): return {'torch': device}")
    (tmp_path / "torch.py").write_text(TORCH.format(filled="1", error=error))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    wrong, environments = gpus(2)
    assert [kind["machine"] for kind in environments] == devices
    assert wrong == [] if devices else "ECC" in wrong[0]
