"""Questions to every node of the connected Ray cluster, busy or not; a node without an answer has a reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from topk_platform.errors import reason
from topk_platform.running.cluster.address import is_loopback
from topk_platform.running.cluster.capacity import LOST, alive_nodes, cluster_size, pinned_to
from topk_platform.running.preflight.doctor.facts import Facts, Question, examine, now
from topk_platform.running.preflight.doctor.results import DRIVER, CheckResult, Node
from topk_platform.running.ray_internals import wants_token

__all__ = ["ask_nodes", "check_cluster", "named", "seconds_behind"]

_CLOCK_SECONDS = 30.0
_HEAD = "node:__internal_head__"


def ask_nodes(question: Question, patience: float) -> list[Node]:
    """Return the cluster's nodes with their answers.

    Args:
        question: What each node is asked; the number of GPUs is replaced by the number that Ray counts on that node.
        patience: Seconds for all nodes together; a node's first worker fetches the packages and imports torch.
    """
    nodes = alive_nodes()
    names = named(nodes)
    asked = {
        _on(node, examine, replace(question, gpus=node["Resources"].get("GPU", 0.0))): (name, node)
        for name, node in zip(names, nodes, strict=True)
    }
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=patience)
    return [
        _node(name, node, answer if answer in answered else None, patience)
        for answer, (name, node) in asked.items()
    ]


def named(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the nodes' names: their addresses, with their identities where addresses are the same.

    Example:
        >>> named([{"NodeManagerAddress": "10.0.0.1", "NodeID": i, "Resources": {}} for i in ("4f2a1c00", "9b00ff11")])
        ['10.0.0.1 (4f2a1c)', '10.0.0.1 (9b00ff)']
    """
    counts = Counter(node["NodeManagerAddress"] for node in nodes)
    return [_name(node, counts[node["NodeManagerAddress"]] > 1) for node in nodes]


def _name(node: Mapping[str, Any], ambiguous: bool) -> str:
    parts = ["head"] if _HEAD in node["Resources"] else [node["NodeID"][:6]] if ambiguous else []
    return " ".join([node["NodeManagerAddress"], *(f"({part})" for part in parts)])


def _on(node: Mapping[str, Any], function: Any, *arguments: Any) -> Any:
    remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=pinned_to(node))(function)
    return remote.remote(*arguments)


def _node(name: str, node: Mapping[str, Any], answer: Any, patience: float) -> Node:
    gpus = node["Resources"].get("GPU", 0.0)
    if answer is None:
        return Node(name, None, f"does not answer within {patience:.0f} s", gpus)
    try:
        facts: Facts = ray.get(answer)
        return Node(name, facts, gpus=gpus, behind=_behind(node))
    except LOST:
        return Node(name, None, "left the cluster while it was asked", gpus, lost=True)
    except (RayError, ImportError) as error:
        lines = str(error).strip().splitlines() or [reason(error)]
        return Node(name, None, lines[-1], gpus)


def _behind(node: Mapping[str, Any]) -> float | None:
    """Return the least number of seconds by which a node's clock is behind; None if the node answers too late."""
    before = time.time()
    try:
        there = ray.get(_on(node, now), timeout=_CLOCK_SECONDS)
    except GetTimeoutError:  # a busy node, whose other answers are as good as before
        return None
    return seconds_behind(before, there, time.time())


def seconds_behind(before: float, there: float, after: float) -> float:
    """Return by how many seconds at least another machine's clock is behind this one's; negative if it is ahead.

    Args:
        before: This machine's time before the other clock was read.
        there: The time that the other clock showed.
        after: This machine's time after the other clock was read.

    Example:
        >>> seconds_behind(100.0, 101.0, 102.0), seconds_behind(100.0, 40.0, 102.0), seconds_behind(100.0, 112.0, 102.0)
        (0.0, 60.0, -10.0)
    """
    return before - there if there < before else min(0.0, after - there)


def check_cluster() -> CheckResult:
    """Return a result on the cluster's size, and on whether it asks for a token."""
    address, finding = ray.get_runtime_context().gcs_address, cluster_size()
    if is_loopback(address) or wants_token():
        return CheckResult("cluster", "good", finding, "", [DRIVER])
    finding += "; anyone who reaches this address can run code there, because no token is required"
    remedy = "start its nodes with RAY_AUTH_MODE=token and one token: docs/cluster.md"
    return CheckResult("cluster", "warning", finding, remedy, [DRIVER])
