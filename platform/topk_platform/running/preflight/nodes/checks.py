"""From machines' facts to what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topk_platform.running.machine.requirements import fits
from topk_platform.running.preflight.nodes.facts import ABSENT, Facts

__all__ = ["DECIDING", "DRIVER", "Finding", "Node", "check_bits", "check_node", "check_versions"]

DRIVER = "driver"
"""The name of the machine that starts the study."""

DECIDING = ("torch", "torchvision", "numba", "ray", "optuna")
"""Packages that must have the driver's version on every machine.

With other versions, results differ or the processes do not understand each other.
"""

_GIB = 2**30
_LITTLE = _GIB
_SECONDS_OFF = 300.0  # beyond this, object stores refuse signed requests
_BUSY = 0.5  # if a larger part of a GPU's memory is taken, another process must be using it


@dataclass(frozen=True)
class Node:
    """A node of a cluster, or the driver.

    Args:
        name: The node's name.
        facts: Its answers; None if it did not answer.
        problem: Why it did not answer.
        gpus: How many GPUs Ray counts there.
        behind: By how many seconds its clock is behind the driver's; negative if ahead.
        lost: Whether it left the cluster while it was asked.
    """

    name: str
    facts: Facts | None
    problem: str = ""
    gpus: float = 0.0
    behind: float = 0.0
    lost: bool = False


@dataclass(frozen=True)
class Finding:
    """What would stop a study, change its results or surprise, and what to do about it.

    Args:
        check: What was checked, in a word.
        node: The node's name, or ``"driver"``.
        finding: What is wrong, in one line.
        remedy: What to do about it.
        wrong: Whether it stops a study or changes its results; otherwise it is only to note.
    """

    check: str
    node: str
    finding: str
    remedy: str
    wrong: bool = True


def check_node(
    driver: Facts, node: Node, facts: Facts, requirements: Mapping[str, str], folder: str
) -> list[Finding]:
    """Return what is wrong with a node, beside what :func:`check_bits` compares.

    Args:
        driver: The driver's answers.
        node: The node.
        facts: Its answers.
        requirements: The supported versions of packages.
        folder: The folder of datasets.
    """
    findings = check_versions(driver, node.name, facts, requirements)
    findings += [Finding(check, node.name, *said) for check, *said in _gpus(node, facts)]

    def wrong(check: str, finding: str, remedy: str) -> None:
        findings.append(Finding(check, node.name, finding, remedy))

    if facts.python != driver.python:  # Ray refuses the objects that it is sent
        remedy = f"install Python {driver.python} there, or start the study with {facts.python}"
        wrong("python", f"{facts.python}, the driver's is {driver.python}", remedy)
    if facts.code != driver.code:
        why = facts.problems.get("code", f"version {facts.code}, the driver's is {driver.code}")
        wrong("code", why, "install topk-studies there again, or remove other copies from PYTHONPATH")
    for name, why in facts.problems.items():
        if name.startswith("reference "):
            wrong("modules", why, "install there what the module imports")
    for name, expected in driver.data.items():
        if problem := facts.problems.get(f"data {name}"):
            remedy = f"put what is missing into {folder} there, or name with --data a folder of all machines"
            wrong("data", f"{name}: {problem}", remedy)
        elif expected and facts.data[name] != expected:
            finding = f"{name}: fingerprint {facts.data[name]}, the driver's is {expected}"
            wrong("data", finding, f"copy the driver's {folder} there")
    for purpose, free in facts.free.items():
        if free < _LITTLE:
            remedy = f"free some of the disk of {purpose}, or use another one"
            wrong("disk", f"{free / _GIB:.1f} GiB free for {purpose}", remedy)
    if abs(node.behind) > _SECONDS_OFF:
        finding = f"{abs(node.behind):.0f} s {'behind' if node.behind > 0 else 'ahead of'} the driver's"
        wrong("clock", finding, "let a time service set it there (chrony, systemd-timesyncd)")
    return findings


def check_versions(driver: Facts, node: str, facts: Facts, requirements: Mapping[str, str]) -> list[Finding]:
    """Return packages without a supported version or, where results depend on it, without the driver's version."""
    findings = []
    for name in sorted({*requirements, *DECIDING}):
        here, version, expected = driver.packages[name], facts.packages[name], requirements.get(name, "")
        if name in requirements and (version == ABSENT or not fits(version, expected)):
            finding = f"{name} {version}, the platform takes {expected or 'any'}"
            findings.append(Finding("versions", node, finding, f"pip install '{name}{expected}'"))
        elif name in DECIDING and version != here:
            remedy = f"there: pip install '{name}=={here}'"
            findings.append(Finding("versions", node, f"{name} {version}, the driver's is {here}", remedy))
    return findings


def _gpus(node: Node, facts: Facts) -> Iterator[tuple[Any, ...]]:
    promised = f"Ray counts {node.gpus:g} here, and " if node.gpus else ""
    there, kinds = len(facts.gpus), sorted({gpu.name for gpu in facts.gpus})
    if why := facts.problems.get("gpus"):
        yield "gpus", promised + why, "repair the driver there, or start Ray there with --num-gpus 0"
    elif node.gpus > there:
        yield "gpus", f"{promised}torch finds {there}", f"start Ray there with --num-gpus {there}"
    for gpu in facts.gpus:
        if gpu.free < (1 - _BUSY) * gpu.memory:
            finding = f"{gpu.name}, {gpu.free / _GIB:.0f} of {gpu.memory / _GIB:.0f} GiB free"
            yield "gpus", finding, "free it of other processes, or give trials less of it (gpus)", False
    if len(kinds) > 1:
        remedy = "start Ray there with CUDA_VISIBLE_DEVICES of one kind, or run with --mixed"
        yield "gpus", f"of several kinds: {', '.join(kinds)}", remedy


def check_bits(nodes: Sequence[tuple[Node, Facts]], driver: Facts, device: str) -> Iterator[Finding]:
    """Yield the machines that would compute other bits than the majority of machines; a tie is the driver's to decide.

    Of a study for GPUs, machines without a GPU are not compared; if none has one, that is wrong.
    """
    for node, facts in nodes:
        if why := facts.problems.get("environment"):
            finding = f"torch cannot report its environment: {why}"
            yield Finding("same bits", node.name, finding, "repair torch there")
    computing = [(node, facts) for node, facts in nodes if device == "cpu" or facts.gpus]
    if nodes and not computing:
        remedy = "machines with GPUs; or try it on the CPU with --smoke"
        yield Finding("gpus", "all", "the study needs a GPU and no machine has one", remedy)
    known = [(node, facts.environment) for node, facts in computing if facts.environment]
    votes = Counter(tuple(sorted(environment.items())) for _, environment in known)
    here = tuple(sorted(driver.environment.items()))
    most = max(votes, key=lambda kind: (votes[kind], kind == here)) if votes else ()
    expected = dict(most)
    for node, environment in known:
        differing = [
            f"{name} {environment.get(name)}, not {value}"
            for name, value in expected.items()
            if environment.get(name) != value
        ]
        if differing:
            remedy = (
                "machines of one kind with the same packages, or the option --mixed of `topk run`: the table then "
                "says so"
            )
            yield Finding("same bits", node.name, "; ".join(differing), remedy)
