"""How many trials a Ray cluster can run at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources

from topk_platform.errors import ClusterError
from topk_platform.specs import Study

__all__ = ["nodes_for", "slots", "trial_resources"]

_GROW_SECONDS = 900.0  # a cloud's GPU machine, its image and its set-up commands


def trial_resources(study: Study) -> dict[str, float]:
    """Return what Ray keeps free for one trial, in Ray's own words.

    Example:
        >>> from topk_studies import digits
        >>> trial_resources(digits())
        {'CPU': 1}
    """
    return {"CPU": study.threads} | ({"GPU": study.gpus} if study.device == "cuda" else {})


def slots(study: Study, workers: int | None, *, may_grow: bool) -> int:
    """Return how many trials may run at once on the connected cluster.

    Args:
        study: Says what a trial needs.
        workers: How many the user wants; by default as many as fit.
        may_grow: Whether the cluster can add nodes. Then, if ``workers`` is given and no node fits a trial yet, it is
            asked for one that does, and has 15 minutes to bring it.

    Raises:
        ClusterError: if no trial fits on any node.
    """
    needs = trial_resources(study)
    if not fitting(needs) and may_grow and workers is not None:
        _grow(needs)
    if not (found := fitting(needs)):
        hint = "; of a cluster that adds nodes when asked, say with --workers how far it may grow"
        raise ClusterError(
            f"a trial of {study.name} needs {needs} on one node, and the nodes have {_described()}"
            + (hint if may_grow and workers is None else "")
        )
    return workers or found


def fitting(needs: Mapping[str, float]) -> int:
    """Return how many trials the nodes that are up hold; a trial never spans two nodes."""
    return sum(_holds(node, needs) for node in _nodes())


def nodes_for(needs: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the nodes that are up and hold at least one trial, as Ray describes them."""
    return [node for node in _nodes() if _holds(node, needs)]


def _holds(node: Mapping[str, Any], needs: Mapping[str, float]) -> int:
    return min(int(node["Resources"].get(name, 0) / amount + 1e-9) for name, amount in needs.items())


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _described() -> str:
    found = ({name: node["Resources"].get(name, 0) for name in ("CPU", "GPU")} for node in _nodes())
    return ", ".join(map(str, found))


def _grow(needs: Mapping[str, float]) -> None:
    until = time.monotonic() + _GROW_SECONDS
    request_resources(bundles=[dict(needs)])
    try:
        while not fitting(needs) and time.monotonic() < until:
            time.sleep(1)
    finally:
        request_resources(bundles=[])  # from here on the trials themselves ask
