"""How many trials a Ray cluster can run at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources

from topk_platform.running.cluster.machine import fitting
from topk_platform.running.cluster.reaching import NotYetError, Patience
from topk_platform.specs import Study

__all__ = ["cluster_size", "nodes_for", "slots", "trial_resources"]

_GROW_SECONDS = 900.0  # a cloud's GPU machine takes time for its start, image and set-up commands
_UNITS = 10_000  # the parts in which Ray counts; rounding up could make one trial fewer fit
_KIND = "accelerator_type:"


def trial_resources(study: Study) -> dict[str, float]:
    """Return the Ray resources of one trial.

    Ray counts a GPU in ten thousandths. A trial that needs a certain kind of GPU also takes a thousandth of Ray's
    resource for that kind, of which each machine with such GPUs has one unit.

    Example:
        >>> from dataclasses import replace
        >>> from topk_studies import digits
        >>> trial_resources(digits()), trial_resources(replace(digits(), device="cuda", gpus=1 / 6))
        ({'CPU': 1}, {'CPU': 1, 'GPU': 0.1666})
        >>> trial_resources(replace(digits(), device="cuda", accelerator="L4"))
        {'CPU': 1, 'GPU': 1.0, 'accelerator_type:L4': 0.001}
    """
    needs: dict[str, float] = {"CPU": study.threads}
    if study.device == "cuda":
        needs["GPU"] = max(math.floor(_UNITS * study.gpus + 1e-6), 1) / _UNITS
    if study.accelerator:
        needs[f"{_KIND}{study.accelerator}"] = 0.001
    return needs


def slots(study: Study, workers: int | None, patience: Patience | None = None) -> int:
    """Return how many trials may run at once on the connected cluster.

    Args:
        study: The study, which says what resources a trial needs.
        workers: How many the user asked for; by default as many as fit, and no more than fit where no node may join:
            a worker that cannot start would keep its trial from the others.
        patience: How long to wait while no node can hold a trial, by default a minute; None if no node may join. If
            ``workers`` is given too, the cluster's autoscaler is asked for such a node, and the default is 15 minutes.

    Raises:
        ClusterError: if no trial fits on any node.
    """
    needs, grows = trial_resources(study), patience is not None and workers is not None
    hint = "; if the cluster can add nodes, give --workers: then it is asked to add one"

    def fit() -> int:
        if holds := sum(_holds(node, needs) for node in _alive_nodes()):
            return holds
        there = ", ".join(str(_resources(node["Resources"])) for node in _alive_nodes())
        lacking = f"a trial of {study.name} needs {needs} on one node, and the nodes have {there}"
        raise NotYetError(lacking + (hint if patience is not None and not grows else ""))

    if patience is None:
        holds = fit()
        return min(workers or holds, holds)
    if not grows or nodes_for(needs):
        return workers or patience.until(fit)
    # For as long as this waits; afterwards the trials' own demand asks for nodes.
    request_resources(bundles=[needs])
    try:
        patience.until(fit, _GROW_SECONDS)
    finally:
        request_resources(bundles=[])
    return workers or 1


def nodes_for(needs: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the running nodes that can hold at least one trial, as Ray describes them."""
    return [node for node in _alive_nodes() if _holds(node, needs)]


def cluster_size() -> str:
    """Return the connected cluster's address and size in words, ``10.0.0.1:6379: 2 nodes, 16 CPUs, 1 GPU``."""
    resources = ray.cluster_resources()
    counts = {"node": len(_alive_nodes()), **{name: resources.get(name, 0.0) for name in ("CPU", "GPU")}}
    parts = [f"{n:g} {name}{'' if n == 1 else 's'}" for name, n in counts.items() if n or name == "CPU"]
    return f"{ray.get_runtime_context().gcs_address}: {', '.join(parts)}"


def _alive_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _holds(node: Mapping[str, Any], needs: Mapping[str, float]) -> int:
    """Return how many trials a node can hold at once; a trial never spans two nodes."""
    return min(fitting(node["Resources"].get(name, 0), amount) for name, amount in needs.items())


def _resources(of_node: Mapping[str, float]) -> dict[str, float]:
    kinds = sorted(name for name in of_node if name.startswith(_KIND))
    return {name: of_node.get(name, 0) for name in ("CPU", "GPU", *kinds)}
