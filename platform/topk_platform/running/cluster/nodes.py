"""The nodes of a cluster: how many trials they can hold, and what is wrong with them for a study.

`topk run` refuses what `topk plan --address` lists.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.exceptions import NodeDiedError, RayError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from topk_platform.data import data_at, data_folder
from topk_platform.errors import ClusterError, StoreError, UserError
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.connecting import connected
from topk_platform.running.cluster.machine import KIND, fitting, trial_resources
from topk_platform.running.cluster.node_facts import (
    DRIVER,
    Answer,
    Finding,
    Question,
    examine,
    fingerprint,
    grouped,
)
from topk_platform.running.cluster.ray_internals import reason_in
from topk_platform.running.cluster.reaching import NotYetError, Patience, is_loopback
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few, plural
from topk_platform.tracking.feed import check_tracking
from topk_platform.versions import loaded_version

__all__ = ["ask_nodes", "check_cluster", "check_nodes", "cluster_size", "slots"]

_GROW_SECONDS = 900.0  # a cloud's GPU machine takes time for its start, image and set-up commands
_QUIET_SECONDS = 5.0  # before a line names the nodes that have not answered
_ANSWER_SECONDS = 300.0  # the first worker of a node fetches the packages, imports torch and reads the data
_NAMED = 4  # nodes in a line
_HEAD = "node:__internal_head__"


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
    needs = trial_resources(study)
    hint = "; if the cluster can add nodes, give --workers: then it is asked to add one"

    def fit() -> int:
        nodes = [node["Resources"] for node in _alive_nodes()]
        # A trial never spans two nodes.
        if holds := sum(min(fitting(node.get(name, 0), n) for name, n in needs.items()) for node in nodes):
            return holds
        kinds = sorted({name for node in nodes for name in node if name.startswith(KIND)})
        have = [{name: node.get(name, 0) for name in ("CPU", "GPU", *kinds)} for node in nodes]
        lacking = f"a trial of {study.name} needs {needs} on one node, and the nodes have {have}"
        raise NotYetError(lacking + (hint if patience is not None and workers is None else ""))

    if patience is None:
        holds = fit()
        return min(workers or holds, holds)
    if workers is None:
        return patience.until(fit)
    if not _nodes_for(needs):
        # For as long as this waits; afterwards the trials' own demand asks for nodes.
        request_resources(bundles=[needs])
        try:
            patience.until(fit, _GROW_SECONDS)
        finally:
            request_resources(bundles=[])
    return workers


def cluster_size() -> str:
    """Return the connected cluster's address and size in words, ``10.0.0.1:6379: 2 nodes, 16 CPUs, 0 GPUs``."""
    resources = ray.cluster_resources()
    counts = {"node": len(_alive_nodes()), **{name: int(resources.get(name, 0)) for name in ("CPU", "GPU")}}
    parts = ", ".join(plural(count, name) for name, count in counts.items())
    return f"{ray.get_runtime_context().gcs_address}: {parts}"


def _alive_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _nodes_for(needs: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the running nodes that can hold at least one trial, the head first."""
    nodes = [
        n for n in _alive_nodes() if all(n["Resources"].get(k, 0) >= amount for k, amount in needs.items())
    ]
    return sorted(nodes, key=lambda node: _HEAD not in node["Resources"])


def check_nodes(study: Study, store: Store, patience: Patience, *, mixed: bool = False) -> dict[str, str]:
    """Return the common environment of all nodes on which the study's trials fit.

    Answering takes neither a core nor a GPU, so nodes answer even if all of theirs are busy. A node that is lost before
    it answers, or that has not answered after five minutes, is left out if others have, and a line says so. Such nodes,
    and those that join later, are checked when a trial starts there, because each trial carries what it was planned
    for.

    Args:
        study: The study whose trials are to run.
        store: The store that every node must see.
        patience: How long to wait for a node if none is there, or all are lost before they answer, by default a minute;
            and for answers, if it is longer than five minutes.
        mixed: Whether nodes may compute different bits; then it does not matter what their devices are.

    Raises:
        ClusterError: with all that is wrong on any node, or if none answers.
        StoreError: if the store cannot keep two drivers apart.
    """
    with _marked(store) as mark:
        findings, environment = _look_at_nodes(study, store, mark, patience)
    allowed = ("same bits", "gpus") if mixed else ()
    wrong = []
    for item, nodes in grouped(findings).items():
        where = f"{item.check}, {first_few(nodes, _NAMED)}: {item.finding}"
        if not item.wrong:
            patience.say(f"Note: {where}")
        elif item.check not in allowed:
            wrong.append(f"{where} ({item.remedy})")
    if wrong:
        raise ClusterError(f"the cluster cannot train study {study.name}: {'; '.join(wrong)}")
    return environment


def check_cluster(
    study: Study, address: str, store: str | Path, mlflow: str | None, data: str | Path | None
) -> list[Finding]:
    """Return what would stop a study on a cluster or change its results, on any node on which its trials fit.

    This writes files of at most a MiB into the store and deletes them; it writes nothing else and trains nothing.

    Args:
        study: The study.
        address: The cluster's address, ``host:port`` or ``auto``.
        store: Folder or URI of the results.
        mlflow: MLflow's tracking URI, which is asked too; None or ``"none"`` for none.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
    """
    driver, seen, mark = Answer(DRIVER), None, ""
    with driver.checking("store", UserError), ExitStack() as stack:
        with driver.checking("store", UserError):
            seen = Store.open(store)
            mark = stack.enter_context(_marked(seen))
        with driver.checking("tracking", UserError):
            if mlflow not in (None, "none"):
                check_tracking(mlflow)
        at_once = Patience(0)
        with driver.checking("cluster", UserError), connected(study, address, None, at_once), data_at(data):
            # Ray sets the variable by itself if it has a token.
            if not (
                is_loopback(ray.get_runtime_context().gcs_address)
                or os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
            ):
                driver.add("token", f"anyone who reaches {cluster_size()} can run code there")
            driver.findings.extend(_look_at_nodes(study, seen if mark else None, mark, at_once)[0])
    return driver.findings


def _look_at_nodes(
    study: Study, store: Store | None, mark: str, patience: Patience
) -> tuple[list[Finding], dict[str, str]]:
    """Return what is wrong on the connected cluster's nodes, and the environment of most of their devices.

    Args:
        study: The study; nodes on which none of its trials fits are not asked.
        store: The store that every node must see; None if it is not asked for.
        mark: The name of the driver's file in the store.
        patience: See :func:`check_nodes`.
    """
    data, code, known = str(data_folder()), {arm.name: loaded_version(arm) for arm in study.arms}, {}
    for arm in study.arms:
        with suppress(UserError):  # the study is not planned, and says why
            known[arm.name] = fingerprint(arm, data)
    question = Question(study.arms, code, data, known, study.device, store and store.existing, mark)
    answers = ask_nodes(question, trial_resources(study), patience)
    kinds = Counter(tuple(kind.items()) for answer in answers for kind in answer.environments)
    # In a tie the head decides, which comes first.
    expected = dict(kinds.most_common(1)[0][0]) if kinds else {}
    for answer in answers:
        for kind in answer.environments:
            unlike = [
                f"{name} {kind.get(name)}, not {v}" for name, v in expected.items() if kind.get(name) != v
            ]
            if unlike:
                answer.add("same bits", "; ".join(unlike))
    return [*dict.fromkeys(finding for answer in answers for finding in answer.findings)], expected


@contextmanager
def _marked(store: Store) -> Iterator[str]:
    """Put a file into the store for as long as the block lasts; yield its name.

    Two drivers are kept apart by a file that only one of them can create, so that is checked too.
    """
    store.check_writable()
    folder, name = store.existing, f".seen-{uuid.uuid4().hex}"
    first, again = (folder.create(name, b"") for _ in range(2))
    try:
        if again or not first:
            raise StoreError(
                f"store {store.uri!r} lets two processes create the same file, which would destroy a ledger: its "
                "server must support conditional writes (If-None-Match)"
            )
        yield name
    finally:
        folder.delete(name)


def ask_nodes(question: Question, needs: Mapping[str, float], patience: Patience) -> list[Answer]:
    """Return the answers of the nodes that have these resources, the head's first; wait for a node if all are lost.

    Args:
        question: What each node is asked.
        needs: The resources that a node must have to be asked; it need not have them free.
        patience: See :func:`check_nodes`.
    """

    def ask() -> list[Answer]:
        asked = {}
        for node in _nodes_for(needs):
            which = "head" if _HEAD in node["Resources"] else node["NodeID"][:6]
            name = f"{node['NodeManagerAddress']} ({which})"
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(examine)
            asked[remote.remote(replace(question, node=name, gpus=node["Resources"].get("GPU", 0.0)))] = name
        answers = _answers(asked, patience)
        if not any(map(_is_there, answers)):
            lost = [f"node {item.node} {item.finding}" for answer in answers for item in answer.findings]
            raise NotYetError(", ".join(lost) or "no node is left on which a trial fits")
        return answers

    return patience.until(ask)


def _answers(asked: Mapping[Any, str], patience: Patience) -> list[Answer]:
    """Return the answers in time, and for the other nodes that they are left out, or wrong if there is no answer."""
    limit = max(_ANSWER_SECONDS, patience.seconds or 0.0)
    ready, silent = ray.wait([*asked], num_returns=len(asked), timeout=_QUIET_SECONDS)
    if silent:
        names = first_few([asked[request] for request in silent], _NAMED)
        patience.say(f"waiting for {names} to answer: starting, or busy")
        ready, silent = ray.wait([*asked], num_returns=len(asked), timeout=limit - _QUIET_SECONDS)
    answers = [_answer(asked[request], request) for request in ready]
    check = "left out" if any(map(_is_there, answers)) else "node"
    for request in silent:
        ray.cancel(request)
        answers.append(Answer(asked[request]))
        answers[-1].add(check, f"did not answer within {limit:.0f} s")
    return answers


def _is_there(answer: Answer) -> bool:
    """Return whether a node is there, whatever it says."""
    return not any(finding.check == "left out" for finding in answer.findings)


def _answer(node: str, request: Any) -> Answer:
    answer = Answer(node)
    try:
        answer = ray.get(request)
    except (NodeDiedError, TaskUnschedulableError):
        answer.add("left out", "was lost before it answered")
    except (RayError, ImportError) as error:
        answer.add("node", reason_in(str(error)))
    return answer
