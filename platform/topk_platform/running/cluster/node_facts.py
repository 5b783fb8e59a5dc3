"""What is wrong with a machine for a study: asked on every node; its cores and GPUs may all be in use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from topk_platform.errors import StoreError, reason
from topk_platform.records.storage.store import Store
from topk_platform.references import import_reference
from topk_platform.running.cluster.machine import slices_here
from topk_platform.specs import Arm
from topk_platform.versions import differences, loaded_version, references

__all__ = ["DRIVER", "Answer", "Finding", "Question", "examine", "fingerprint", "grouped"]

DRIVER = "driver"
"""The name of the machine that starts the study."""

_REMEDIES = {
    "study": "change the study or the options as this says",
    "cluster": "start one with a token by deploy/start-head.sh, and export RAY_AUTH_MODE=token here: docs/cluster.md",
    "node": "see Ray's logs there: a node needs all that pip install 'topk-studies[platform]' brings. A Ray that you "
    "have connected gets this package by runtime_env={'py_modules': [topk_losses, topk_platform]}",
    "same bits": "take machines of one kind with the same packages, give --accelerator, or allow it by --mixed",
    "code": "install there what the study's modules import, topk-studies again if its own differ, or remove other "
    "copies from PYTHONPATH",
    "data": "copy the driver's folder of datasets there, or give --data a folder of all machines",
    "gpus": "repair the driver there, or start Ray there with --num-gpus of those that torch can use",
    "store": "give --store a folder that all machines share, or s3://, gs:// or az:// with credentials everywhere",
    "tracking": "start the server, or correct its address",
}
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
    """What would stop a study or change its results, and what to do about it.

    Args:
        check: What was checked, in a word.
        node: The machine's name.
        finding: What is wrong, in one line.
        remedy: What to do about it.
    """

    check: str
    node: str
    finding: str
    remedy: str

    @classmethod
    def of(cls, check: str, node: str, finding: str) -> Finding:
        """Return a finding with the remedy of its check."""
        return cls(check, node, finding, _REMEDIES[check])


def grouped(findings: Iterable[Finding]) -> dict[Finding, list[str]]:
    """Return the nodes of each finding, so that what is the same on several is said once."""
    nodes: dict[Finding, list[str]] = {}
    for item in findings:
        nodes.setdefault(replace(item, node=""), []).append(item.node)
    return nodes


@dataclass(frozen=True)
class Question:
    """What a node must have.

    Args:
        arms: The arms whose modules must be importable.
        code: The components of each arm with their versions, by the arm's name.
        data: The folder of datasets.
        fingerprints: The fingerprint of each arm's data, by the arm's name; those that the driver cannot read are left
            out.
        device: The device on which the trials are to run, ``"cpu"`` or ``"cuda"``.
        store: The store; None if it is not asked for.
        mark: The name of a file that the driver has put there.
        node: The node's name.
        gpus: How many GPUs Ray counts there.
    """

    arms: Sequence[Arm]
    code: Mapping[str, str]
    data: str
    fingerprints: Mapping[str, str]
    device: str = "cpu"
    store: Store | None = None
    mark: str = ""
    node: str = ""
    gpus: float = 0.0


@dataclass(frozen=True)
class Answer:
    """A machine's answer.

    Args:
        node: The machine's name.
        findings: What is wrong there.
        environments: The environment of trainings on each device that trials would get.
    """

    node: str = DRIVER
    findings: list[Finding] = field(default_factory=list)
    environments: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, check: str, *texts: str) -> None:
        """Add findings of a check."""
        self.findings.extend(Finding.of(check, self.node, text) for text in texts)

    @contextmanager
    def checking(self, check: str, errors: type[Exception] = Exception) -> Iterator[None]:
        """Add an error of the block as a finding, so that the next check is made after it."""
        try:
            yield
        except errors as error:
            self.add(check, reason(error))


def examine(question: Question) -> Answer:
    """Return this machine's answer; a file of 1 MiB is written into the store, if one was given, and deleted."""
    answer = Answer(question.node)
    for arm in question.arms:
        with answer.checking("code"):
            for name in references(arm):
                import_reference(name)
            answer.add("code", *differences(question.code[arm.name], loaded_version(arm)))
        with answer.checking("data"):
            actual = fingerprint(arm, question.data)
            expected = question.fingerprints.get(arm.name, actual)
            if actual != expected:
                different = f"fingerprint {actual}, the driver's is {expected}"
                answer.add("data", f"dataset {arm.regime.dataset}: {different}")
    if question.store is not None:
        with answer.checking("store"):
            if not question.store.exists(question.mark):
                raise StoreError(f"the driver's file is missing in {question.store.root} on this machine")
            question.store.check_writable()
    with answer.checking("gpus" if question.device == "cuda" else "code"):
        answer.environments.extend(_environments(question))
        usable = len(answer.environments)
        if question.device == "cuda" and question.gpus > usable:
            answer.add("gpus", f"Ray counts {question.gpus:g} here, and torch finds {usable}")
    from topk_platform.data import forget_datasets  # noqa: PLC0415 - torch

    forget_datasets()  # this process may stay idle beside the trials for long
    return answer


def fingerprint(arm: Arm, folder: str) -> str:
    """Return the fingerprint of an arm's data on this machine."""
    from topk_platform.data import data_at, load  # noqa: PLC0415 - torch

    with data_at(folder or None):
        return load(arm.regime).fingerprint


def _environments(question: Question) -> Iterator[Mapping[str, str]]:
    """Yield the environment of each device that trials would get, each slice of MIG as one.

    Raises:
        OSError: if torch can use no GPU.
    """
    if question.device == "cpu":
        from topk_platform.training import environment  # noqa: PLC0415 - torch, which may be missing

        yield environment("cpu")
        return
    path = os.pathsep.join(filter(None, sys.path))
    for name in slices_here() or [os.environ.get("CUDA_VISIBLE_DEVICES", "")]:  # a process uses one slice
        given = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": name}
        # Ray empties the variable for processes that asked for no GPU.
        variables = {name: value for name, value in given.items() if value}
        command = [sys.executable, "-c", _LOOK]
        done = subprocess.run(command, env=variables, capture_output=True, timeout=_GPU_SECONDS, check=False)  # noqa: S603
        if done.returncode:
            last = (done.stderr.decode().strip().splitlines() or ["nothing"])[-1]
            raise OSError(f"Ray counts {question.gpus:g} here, and torch can use none: {last}")
        yield from json.loads(done.stdout)
