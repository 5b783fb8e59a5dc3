"""What is wrong with a machine for a study: asked on every node; its cores and GPUs may all be in use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from topk_platform.errors import StoreError, UserError, reason
from topk_platform.records.storage.store import Store
from topk_platform.references import import_reference
from topk_platform.running.cluster.machine import slices_here
from topk_platform.specs import Arm
from topk_platform.versions import differences, loaded_version, references

__all__ = ["DRIVER", "Answer", "Finding", "Question", "examine", "fingerprints", "grouped"]

DRIVER = "driver"
"""The name of the machine that starts the study."""

_REMEDIES = {
    "study": "change the study or the options as this says",
    "cluster": "start one with a token by deploy/start-head.sh, and export RAY_AUTH_MODE=token here: docs/cluster.md",
    "token": "start its nodes with RAY_AUTH_MODE=token and one token: docs/cluster.md",
    "node": "see Ray's logs there: a node needs all that pip install 'topk-studies[platform]' brings. A Ray that you "
    "have connected gets this package by runtime_env={'py_modules': [topk_losses, topk_platform]}",
    "left out": "none: the others are enough, and trials check it if it is back",
    "same bits": "take machines of one kind with the same packages, choose a kind of GPU with --accelerator, or let "
    "machines differ with --mixed of `topk run`: the table then says so",
    "code": "install there what the study's modules import, topk-studies again if its own differ, or remove other "
    "copies from PYTHONPATH",
    "data": "copy the driver's folder of datasets there, or give --data a folder of all machines",
    "gpus": "repair the driver there, or start Ray there with --num-gpus of those that torch can use",
    "store": "give --store a folder that all machines share, or s3://, gs:// or az:// with credentials everywhere",
    "tracking": "start the server, or correct its address",
}
_NOTES = {"token", "left out"}
_GPU_SECONDS = 120
# This runs in a process of its own: a broken driver may hang, and Ray hides GPUs from processes that asked for none. A
# GPU that other processes fill, or that takes one process at a time, has no memory left for this one.
_LOOK = """
import json, torch
from topk_platform.training import environment
kinds = []
for number in range(max(torch.cuda.device_count(), 1)):  # torch says why there is none
    try:
        torch.zeros(1, device=f"cuda:{number}")
    except RuntimeError as error:
        if not any(words in str(error) for words in ("out of memory", "busy or unavailable")):
            raise
    kinds.append({**environment("cuda"), "machine": torch.cuda.get_device_name(number)})
print(json.dumps(kinds))
"""


@dataclass(frozen=True)
class Finding:
    """What would stop a study, change its results or surprise, and what to do about it.

    Args:
        check: What was checked, in a word.
        node: The machine's name.
        finding: What is wrong, in one line.
        remedy: What to do about it.
        wrong: Whether it stops a study or changes its results; otherwise it is only to note.
    """

    check: str
    node: str
    finding: str
    remedy: str
    wrong: bool

    @classmethod
    def of(cls, check: str, node: str, finding: str) -> Finding:
        """Return a finding with the remedy and the weight of its check."""
        return cls(check, node, finding, _REMEDIES[check], check not in _NOTES)


def grouped(findings: Iterable[Finding]) -> dict[tuple[bool, str, str, str], list[str]]:
    """Return the nodes of each finding, so that what is the same on several is said once; what is wrong comes first."""
    nodes: dict[tuple[bool, str, str, str], list[str]] = {}
    for item in sorted(findings, key=lambda finding: not finding.wrong):
        nodes.setdefault((item.wrong, item.check, item.finding, item.remedy), []).append(item.node)
    return nodes


@dataclass(frozen=True)
class Question:
    """What a node must have.

    Args:
        node: The node's name.
        arms: The arms whose modules must be importable.
        code: The components of each arm with their versions, by the arm's name.
        data: The folder of datasets.
        fingerprints: The fingerprint of each arm's data, by the arm's name; those that the driver cannot read are left
            out.
        device: The device on which the trials are to run, ``"cpu"`` or ``"cuda"``.
        gpus: How many GPUs Ray counts there.
        store: The address of the store; empty if there is none.
        mark: The name of a file that the driver has put there.
    """

    node: str
    arms: Sequence[Arm]
    code: Mapping[str, str]
    data: str
    fingerprints: Mapping[str, str]
    device: str = "cpu"
    gpus: float = 0.0
    store: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Answer:
    """A node's answer.

    Args:
        node: The node's name.
        findings: What is wrong or to note there.
        environments: The environment of trainings on each device that trials would get.
    """

    node: str
    findings: Sequence[Finding] = ()
    environments: Sequence[Mapping[str, str]] = ()


def examine(question: Question) -> Answer:
    """Return this machine's answer; a file of 1 MiB is written into the store, if one was given, and deleted."""
    environments: list[Mapping[str, str]] = []
    looks: list[tuple[str, Callable[[], list[str] | None]]] = [
        *(("code", partial(_code, arm, question.code)) for arm in question.arms),
        *(("data", partial(_data, arm, question)) for arm in question.arms),
        ("store", partial(_store, question)),
        ("gpus" if question.device == "cuda" else "code", partial(_devices, question, environments)),
    ]
    texts: list[tuple[str, str]] = []
    for check, look in looks:
        try:
            texts += [(check, text) for text in look() or ()]
        except Exception as error:  # noqa: BLE001 - the next question is asked after any error
            texts.append((check, reason(error)))
    from topk_platform.data import forget_datasets  # noqa: PLC0415 - torch

    forget_datasets()  # this process may stay idle beside the trials for long
    findings = [Finding.of(check, question.node, text) for check, text in dict.fromkeys(texts)]
    return Answer(question.node, findings, environments)


def _code(arm: Arm, expected: Mapping[str, str]) -> list[str]:
    for name in references(arm):
        import_reference(name)
    actual = loaded_version(arm)
    return differences(expected.get(arm.name, actual), actual)


def fingerprints(arms: Sequence[Arm], folder: str) -> dict[str, str]:
    """Return the fingerprints of the arms' data here, by the arm's name; data that cannot be read are left out."""
    known = {}
    for arm in arms:
        with suppress(UserError):  # the study is not planned, and says why
            known[arm.name] = _fingerprint(arm, folder)
    return known


def _fingerprint(arm: Arm, folder: str) -> str:
    from topk_platform.data import data_at, load  # noqa: PLC0415 - torch

    with data_at(folder or None):
        return load(arm.regime).fingerprint


def _data(arm: Arm, question: Question) -> list[str]:
    actual = _fingerprint(arm, question.data)
    expected = question.fingerprints.get(arm.name, actual)
    different = f"dataset {arm.regime.dataset}: fingerprint {actual}, the driver's is {expected}"
    return [] if actual == expected else [different]


def _store(question: Question) -> None:
    """Raise ``StoreError`` unless the driver's file is in the store, and this machine can write there too."""
    if question.mark:
        store = Store.open(question.store)
        if not store.exists(question.mark):
            raise StoreError(
                f"{store.uri} is a place that this machine does not see: the driver's file is missing"
            )
        store.check_writable()


def _devices(question: Question, environments: list[Mapping[str, str]]) -> list[str]:
    """Add the environment of each device that trials would get, each slice of MIG as one; return what is wrong.

    Raises:
        OSError: if torch can use no GPU.
    """
    if question.device == "cpu":
        from topk_platform.training import environment  # noqa: PLC0415 - torch, which may be missing

        environments.append(environment("cpu"))
        return []
    others = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    others["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    # Ray empties the variable for processes that asked for no GPU.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or None
    devices: Sequence[str | None] = slices_here() or [visible]  # a process uses one slice
    for device in devices:
        given = others if device is None else {**others, "CUDA_VISIBLE_DEVICES": device}
        command = [sys.executable, "-c", _LOOK]
        done = subprocess.run(command, env=given, capture_output=True, timeout=_GPU_SECONDS, check=False)  # noqa: S603
        if done.returncode:
            last = (done.stderr.decode().strip().splitlines() or ["nothing"])[-1]
            raise OSError(f"Ray counts {question.gpus:g} here, and torch can use none: {last}")
        environments += json.loads(done.stdout)
    few = question.gpus > len(environments)
    return [f"Ray counts {question.gpus:g} here, and torch finds {len(environments)}"] if few else []
