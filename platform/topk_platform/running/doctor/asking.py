"""Every node of the connected Ray cluster is asked, busy or not; one that cannot answer says why."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from topk_platform.errors import reason
from topk_platform.running.address import is_loopback
from topk_platform.running.doctor.facts import Facts, Question, examine, now
from topk_platform.running.doctor.findings import DRIVER, Finding, Node

__all__ = ["ask_nodes", "cluster_told", "named", "seconds_behind"]

_CLOCK_SECONDS = 30.0
_HEAD = "node:__internal_head__"


def ask_nodes(question: Question, patience: float) -> list[Node]:
    """Return the cluster's nodes with what they answer.

    Args:
        question: What each is asked; of the GPUs those that Ray was told of there.
        patience: Seconds for all of them together; the first worker of a node fetches the packages and imports torch.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
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
    """Return what nodes are called: by their addresses, and where these are the same by their identities as well.

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
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(function).remote(*arguments)


def _node(name: str, node: Mapping[str, Any], answer: Any, patience: float) -> Node:
    gpus = node["Resources"].get("GPU", 0.0)
    if answer is None:
        return Node(name, None, f"does not answer within {patience:.0f} s", gpus)
    try:
        facts: Facts = ray.get(answer)
        return Node(name, facts, gpus=gpus, behind=_behind(node))
    except (RayError, ImportError) as error:
        lines = str(error).strip().splitlines() or [reason(error)]
        return Node(name, None, lines[-1], gpus)


def _behind(node: Mapping[str, Any]) -> float:
    """Return by how much a node's clock is certainly behind, however long the answer took."""
    before = time.time()
    there = ray.get(_on(node, now), timeout=_CLOCK_SECONDS)
    return seconds_behind(before, there, time.time())


def seconds_behind(before: float, there: float, after: float) -> float:
    """Return by how much a clock is behind that told its time between two moments of ours, below 0 where it is ahead.

    Example:
        >>> seconds_behind(100.0, 101.0, 102.0), seconds_behind(100.0, 40.0, 102.0), seconds_behind(100.0, 112.0, 102.0)
        (0.0, 60.0, -10.0)
    """
    return before - there if there < before else min(0.0, after - there)


def cluster_told() -> Finding:
    """Return what cluster it is, and whether others than its owner may use it."""
    address, resources = ray.get_runtime_context().gcs_address, ray.cluster_resources()
    size = ", ".join(f"{resources[name]:g} of {name}" for name in ("CPU", "GPU") if resources.get(name))
    found = f"{address}: {sum(node['Alive'] for node in ray.nodes())} nodes, {size or 'no CPU'}"
    if is_loopback(address) or is_token_auth_enabled():
        return Finding("cluster", "good", found, "", [DRIVER])
    found += "; who reaches this address runs code there, no token is asked for"
    remedy = "start its nodes with RAY_AUTH_MODE=token and one token: docs/cluster.md"
    return Finding("cluster", "warning", found, remedy, [DRIVER])
