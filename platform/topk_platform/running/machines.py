"""What decides a result's last bits on a cluster's nodes, asked of them before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from topk_platform.errors import ClusterError
from topk_platform.running.capacity import nodes_for, trial_resources
from topk_platform.specs import Study
from topk_platform.training import environment

__all__ = ["common_environment"]

_ANSWER_SECONDS = 120.0  # the first worker of a node fetches the packages and imports torch


def common_environment(study: Study) -> dict[str, str]:
    """Return the environment that all nodes have on which the study's trials fit.

    Nodes whose resources somebody else holds are not waited for, as long as one answers. They, and nodes that come
    later, are checked when a trial starts there: it carries the environment that it was planned for.

    Raises:
        ClusterError: if two nodes differ, naming both and in what, or one has no GPU that torch can use.
    """
    (first, wanted), *others = _environments(study).items()
    for name, found in others:
        differing = [
            f"{key} {value} and {found[key]}" for key, value in wanted.items() if found[key] != value
        ]
        if differing:
            raise ClusterError(
                f"nodes {first} and {name} would not compute the same bits: {'; '.join(differing)}. Take machines "
                "of one kind with the same versions, or let them differ with --mixed: the table then says so"
            )
    return wanted


def _environments(study: Study) -> dict[str, dict[str, str]]:
    """Return the environments of the nodes that answer, by the node's address."""
    needs = trial_resources(study)
    asked = {_ask(node, needs, study.device): node["NodeManagerAddress"] for node in nodes_for(needs)}
    answered, waiting = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_SECONDS)
    if not answered:
        answered, waiting = ray.wait(list(asked))
    for answer in waiting:
        ray.cancel(answer)
    return {asked[answer]: _answer(answer, asked[answer]) for answer in answered}


def _ask(node: Mapping[str, Any], needs: Mapping[str, float], device: str) -> Any:
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task = ray.remote(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), scheduling_strategy=there)(
        _environment
    )
    return task.remote(device)


def _environment(device: str) -> dict[str, str]:
    return environment(device)


def _answer(answer: Any, name: str) -> dict[str, str]:
    try:
        found: dict[str, str] = ray.get(answer)
    except RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ClusterError(f"node {name} cannot train the study's trials: {reason}") from error
    return found
