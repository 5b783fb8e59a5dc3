"""The nodes of a cluster: how many trials they can hold, and what is wrong with them for a study.

`topk run` refuses what `topk plan --address` lists.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.exceptions import GetTimeoutError, NodeDiedError, RayError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from topk_platform.data import data_at, data_folder
from topk_platform.errors import ClusterError, StoreError, UserError
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.connecting import connected
from topk_platform.running.cluster.lifeline import Cluster
from topk_platform.running.cluster.machine import KIND, fitting, trial_resources
from topk_platform.running.cluster.node_facts import Answer, Finding, Question, examine, fingerprint, grouped
from topk_platform.running.cluster.ray_internals import reason_in
from topk_platform.running.cluster.reaching import NotYetError, Patience, host_and_port, is_loopback
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few
from topk_platform.tracking.feed import check_tracking
from topk_platform.versions import loaded_version

__all__ = ["ask_nodes", "check_cluster", "check_nodes", "on_cluster", "slots"]

_GROW_SECONDS = 900.0  # a cloud's GPU machine takes time for its start, image and set-up commands
_ANSWER_SECONDS = 300.0  # the first worker of a node fetches the packages, imports torch and reads the data
_NAMED = 4  # nodes in a line
_HEAD = "node:__internal_head__"


@contextmanager
def on_cluster(study: Study, options: RunOptions, store: Store, patience: Patience) -> Iterator[Cluster]:
    """Connect to Ray for as long as the block lasts, and check the machines of a cluster.

    Args:
        study: The study.
        options: The options of the run.
        store: The store, which all machines must see.
        patience: How long to wait for the cluster.

    Raises:
        ClusterError: if Ray cannot be used, no trial fits on any node, or a node is wrong for the study.
    """
    is_asked = options.address is not None or ray.is_initialized()
    with connected(study, options.address, options.workers, patience) as line:
        count = slots(study, options.workers, None if options.address is None else patience)
        common = check_nodes(study, store, patience, mixed=options.mixed) if is_asked else None
        yield Cluster(count, line, None if options.mixed else common)


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
        nodes = [node["Resources"] for node in _nodes_for({})]
        # A trial never spans two nodes.
        if holds := sum(min(fitting(node.get(name, 0), n) for name, n in needs.items()) for node in nodes):
            return holds
        have = [{n: node[n] for n in node if n in ("CPU", "GPU") or n.startswith(KIND)} for node in nodes]
        lacking = f"a trial of {study.name} needs {needs} on one node, and the nodes have {have}"
        raise NotYetError(lacking + (hint if patience is not None and workers is None else ""))

    if patience is None or workers is None:
        holds = (patience or Patience(0)).until(fit)
        return min(workers or holds, holds)
    if not _nodes_for(needs):
        # For as long as this waits; afterwards the trials' own demand asks for nodes.
        request_resources(bundles=[needs])
        try:
            patience.until(fit, _GROW_SECONDS)
        finally:
            request_resources(bundles=[])
    return workers


def _nodes_for(needs: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the running nodes that can hold at least one trial, the head first."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    nodes = [n for n in alive if all(n["Resources"].get(k, 0) >= amount for k, amount in needs.items())]
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
    findings, environment = _look_at_nodes(study, store, patience)
    allowed = ("same bits", "gpus") if mixed else ()
    wrong = [
        f"{item.check}, {first_few(nodes, _NAMED)}: {item.finding} ({item.remedy})"
        for item, nodes in grouped(findings).items()
        if item.check not in allowed
    ]
    if wrong:
        raise ClusterError(f"the cluster cannot train study {study.name}: {'; '.join(wrong)}")
    return environment


def check_cluster(
    study: Study,
    address: str,
    store: str | Path,
    mlflow: str | None,
    data: str | Path | None,
    patience: Patience,
) -> list[Finding]:
    """Return what would stop a study on a cluster or change its results, on any node on which its trials fit.

    This writes files of at most a MiB into the store and deletes them; it writes nothing else and trains nothing.

    Args:
        study: The study.
        address: The cluster's address, ``host:port`` or ``auto``.
        store: Folder or URI of the results.
        mlflow: MLflow's tracking URI, which is asked too; None or ``"none"`` for none.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        patience: How long to wait for the cluster; it also reports what is only to note.
    """
    driver, seen = Answer(), None
    with driver.checking("store", UserError):
        opened = Store.open(store)
        opened.check_writable()
        seen = opened
    with driver.checking("tracking", UserError):
        if mlflow not in (None, "none"):
            check_tracking(mlflow)
    connection = connected(study, address, None, patience)
    with (
        driver.checking("cluster", UserError),
        connection,
        data_at(data),
        driver.checking("store", StoreError),
    ):
        head = ray.get_runtime_context().gcs_address
        token = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"  # Ray sets it by itself if it has one
        if not (token or is_loopback(host_and_port(head)[0])):
            patience.say(
                f"Note: anyone who reaches {head} can run code there; give it a token: docs/cluster.md"
            )
        driver.findings.extend(_look_at_nodes(study, seen, patience)[0])
    return driver.findings


def _look_at_nodes(
    study: Study, store: Store | None, patience: Patience
) -> tuple[list[Finding], dict[str, str]]:
    """Return what is wrong on the connected cluster's nodes, and the environment of most of their devices.

    Args:
        study: The study; nodes on which none of its trials fits are not asked.
        store: The store that every node must see; None if it is not asked for.
        patience: See :func:`check_nodes`.
    """
    data, code, known = str(data_folder()), {arm.name: loaded_version(arm) for arm in study.arms}, {}
    for arm in study.arms:
        with suppress(UserError):  # the study is not planned, and says why
            known[arm.name] = fingerprint(arm, data)
    with nullcontext("") if store is None else _marked(store) as mark:
        question = Question(study.arms, code, data, known, study.device, store and store.existing, mark)
        answers = ask_nodes(question, trial_resources(study), patience)
    kinds = Counter(tuple(kind.items()) for answer in answers for kind in answer.environments)
    # In a tie the head decides, which comes first.
    expected = dict(kinds.most_common(1)[0][0]) if kinds else {}
    for answer in answers:
        unlike = sorted({item for kind in answer.environments for item in kind.items() - expected.items()})
        answer.add("same bits", *(f"{name} {value}, not {expected.get(name)}" for name, value in unlike))
    return [*dict.fromkeys(finding for answer in answers for finding in answer.findings)], expected


@contextmanager
def _marked(store: Store) -> Iterator[str]:
    """Put a file into the store for as long as the block lasts; yield its name."""
    folder, name = store.existing, f".seen-{uuid.uuid4().hex}"
    folder.write(name, b"")
    try:
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
    limit = max(_ANSWER_SECONDS, patience.seconds or 0.0)

    def answers() -> list[Answer]:
        there, lost, silent, end = list[Answer](), list[str](), list[str](), time.monotonic() + limit
        asked = _asked(question, needs)
        if asked:
            patience.say(f"waiting for {first_few([*asked], _NAMED)} to answer")
        for name, request in asked.items():
            try:
                there.append(ray.get(request, timeout=max(end - time.monotonic(), 0.0)))
            except GetTimeoutError:
                ray.cancel(request)
                silent.append(f"node {name} did not answer within {limit:.0f} s")
            except (NodeDiedError, TaskUnschedulableError):
                lost.append(f"node {name} was lost before it answered")
            except (RayError, ImportError) as error:
                there.append(Answer(name, [Finding.of("node", name, reason_in(str(error)))]))
        if silent and not there:
            raise ClusterError(", ".join([*silent, *lost]))
        if not there:
            raise NotYetError(", ".join(lost) or "no node is left on which a trial fits")
        if lost or silent:
            patience.say(f"Note: {first_few([*silent, *lost], _NAMED)}; trials check it if it is back")
        return there

    return patience.until(answers)


def _asked(question: Question, needs: Mapping[str, float]) -> dict[str, Any]:
    """Ask the nodes that have these resources; return the request to each, which takes none of its cores and GPUs."""
    asked = {}
    for node in _nodes_for(needs):
        which = "head" if _HEAD in node["Resources"] else node["NodeID"][:6]
        name, gpus = f"{node['NodeManagerAddress']} ({which})", node["Resources"].get("GPU", 0.0)
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(examine)
        asked[name] = remote.remote(replace(question, node=name, gpus=gpus))
    return asked
