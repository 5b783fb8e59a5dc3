"""Questions to every node of a Ray cluster, busy or not, before a study runs there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from topk_platform.data import data_at, data_folder
from topk_platform.errors import ClusterError, StoreError, UserError, reason
from topk_platform.records import Store
from topk_platform.running.cluster.address import is_loopback
from topk_platform.running.cluster.capacity import LOST, alive_nodes, cluster_size, pinned_to
from topk_platform.running.cluster.connecting import joined
from topk_platform.running.cluster.versions import OtherVersionError
from topk_platform.running.machine.requirements import platform_requirements
from topk_platform.running.preflight.nodes.checks import (
    DECIDING,
    DRIVER,
    Finding,
    Node,
    check_bits,
    check_node,
    check_versions,
)
from topk_platform.running.preflight.nodes.facts import Facts, Question, examine, now
from topk_platform.running.ray_internals import wants_token
from topk_platform.specs import Study
from topk_platform.tracking import check_tracking
from topk_platform.versions import references

__all__ = ["ask_nodes", "check_cluster", "check_store"]

_PATIENCE = 900.0  # a node's first worker fetches the packages, imports torch and reads the data
_CLOCK_SECONDS = 30.0
_HEAD = "node:__internal_head__"


def check_cluster(
    study: Study,
    address: str,
    *,
    store: str | Path = "runs",
    mlflow_uri: str | None = None,
    data: str | Path | None = None,
) -> list[Finding]:
    """Return what would stop a study on a cluster or change its results, on any node.

    This writes files of at most a MiB into the store and deletes them; it writes nothing else and trains nothing.

    Args:
        study: The study.
        address: The cluster's address, ``host:port`` or ``auto``.
        store: Folder or URI of the results.
        mlflow_uri: MLflow's tracking URI.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
    """
    with data_at(data):
        folder = str(data_folder())
    opened, findings = check_store(store)
    if mlflow_uri not in (None, "none"):
        try:
            check_tracking(mlflow_uri)
        except UserError as error:
            remedy = "start the server, or correct its address"
            findings.append(Finding("tracking", DRIVER, str(error), remedy))
    requirements = platform_requirements()
    # Regimes that share a dataset differ only in their conditions.
    regimes = {repr((a.regime.dataset, sorted(a.regime.options.items()))): a.regime for a in study.arms}
    question = Question(
        packages=sorted({*requirements, *DECIDING}),
        device=study.device,
        references=sorted({name for arm in study.arms for name in references(arm)}),
        regimes=list(regimes.values()),
        data=folder,
        store="" if opened is None else opened.existing.address,
    )
    driver = examine(question)
    findings += check_versions(driver, DRIVER, driver, requirements)
    try:
        with joined(address, study), _token(opened) as name:
            nodes = ask_nodes(replace(question, token=name), _PATIENCE)
            findings += [*_open_to_all(), *_replies(opened, nodes)]
    except OtherVersionError as error:
        return [*findings, Finding("cluster", DRIVER, error.problem, error.remedy)]
    except ClusterError as error:
        remedy = (
            "start one there with deploy/start-head.sh (docs/cluster.md), which makes a token that keeps others out, "
            "and export RAY_AUTH_MODE=token here"
        )
        return [*findings, Finding("cluster", DRIVER, str(error), remedy)]
    answered = [(node, node.facts) for node in nodes if node.facts is not None]
    for node in nodes:
        if node.facts is None:
            remedy = "see Ray's logs there; a node needs all that pip install 'topk-studies[platform]' brings"
            stops = not (node.lost and answered)
            findings.append(Finding("node", node.name, node.problem, remedy, wrong=stops))
        else:
            findings += check_node(driver, node, node.facts, requirements, folder)
    return [*findings, *check_bits(answered, driver, study.device)]


def ask_nodes(question: Question, patience: float) -> list[Node]:
    """Return the connected cluster's nodes with their answers; a node without an answer has a reason.

    Args:
        question: What each node is asked; the number of GPUs is replaced by the number that Ray counts on that node.
        patience: Seconds for all nodes together.
    """
    asked = {
        _on(node, examine, replace(question, gpus=node["Resources"].get("GPU", 0.0))): node
        for node in alive_nodes()
    }
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=patience)
    return [_node(node, answer if answer in answered else None, patience) for answer, node in asked.items()]


def _name(node: Mapping[str, Any]) -> str:
    which = "head" if _HEAD in node["Resources"] else node["NodeID"][:6]
    return f"{node['NodeManagerAddress']} ({which})"


def _on(node: Mapping[str, Any], function: Any, *arguments: Any) -> Any:
    remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=pinned_to(node))(function)
    return remote.remote(*arguments)


def _node(node: Mapping[str, Any], answer: Any, patience: float) -> Node:
    name, gpus = _name(node), node["Resources"].get("GPU", 0.0)
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


def _behind(node: Mapping[str, Any]) -> float:
    """Return the least number of seconds by which a node's clock is behind; 0 if it is too busy to say."""
    before = time.time()
    try:
        there: float = ray.get(_on(node, now), timeout=_CLOCK_SECONDS)
    except GetTimeoutError:
        return 0.0
    return before - there if there < before else min(0.0, time.time() - there)


def _open_to_all() -> Iterator[Finding]:
    if not (is_loopback(ray.get_runtime_context().gcs_address) or wants_token()):
        finding = f"{cluster_size()}; anyone who reaches this address can run code there, because no token is required"
        remedy = "start its nodes with RAY_AUTH_MODE=token and one token: docs/cluster.md"
        yield Finding("cluster", DRIVER, finding, remedy, wrong=False)


def check_store(uri: str | Path) -> tuple[Store | None, list[Finding]]:
    """Return the store, None if it cannot be used, and what is wrong with it here.

    Two drivers are kept apart by a file that only one of them can create, so exclusive creation is checked too.

    Args:
        uri: The store's folder or URI.
    """
    try:
        opened = Store.open(uri)
        store, name = opened.existing, _a_name()
        store.check_writable()
        first, again = store.create(name, b""), store.create(name, b"")
        store.delete(name)
        if again or not first:
            raise StoreError(
                f"store {store.uri!r} lets two processes create the same file, which would destroy a ledger: its "
                "server must support conditional writes (If-None-Match)"
            )
    except UserError as error:
        remedy = "give another --store, or the rights and credentials for this one"
        return None, [Finding("store", DRIVER, str(error), remedy)]
    return opened, []


def _a_name() -> str:
    return f".preflight-{uuid.uuid4().hex}"


@contextmanager
def _token(store: Store | None) -> Iterator[str]:
    """Put a file into the store for as long as the block lasts, and yield its name; empty without a store."""
    if store is None:
        yield ""
        return
    name = _a_name()
    store.existing.write(name, name.encode())
    try:
        yield name
    finally:
        store.existing.delete(name)


def _replies(store: Store | None, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Check for each node that answered whether its file is visible here too, and delete the file."""
    for node in nodes:
        if store is None or node.facts is None:
            continue
        why = node.facts.problems.get("store", "")
        if not why and not store.existing.exists(node.facts.reply):
            why = "the driver does not see the file that was written there"
        if why:
            shared = "a folder that all machines share, or s3://, gs:// or az://, with credentials on every machine"
            remedy = f"give --store {shared}"
            yield Finding("store", node.name, f"{store.uri}: {why}", remedy)
        else:
            store.existing.delete(node.facts.reply)
