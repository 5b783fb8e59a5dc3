"""The check of a cluster's nodes before a study runs there: `topk run` refuses what `topk plan --address` lists."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import NodeDiedError, RayError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from topk_platform.data import data_at, data_folder
from topk_platform.errors import ClusterError, StoreError, UserError
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.capacity import cluster_size, nodes_for, trial_resources
from topk_platform.running.cluster.connecting import joined
from topk_platform.running.cluster.node_facts import (
    DRIVER,
    Answer,
    Finding,
    Question,
    examine,
    fingerprints,
    grouped,
)
from topk_platform.running.cluster.ray_internals import reason_in
from topk_platform.running.cluster.reaching import NotYetError, Patience, is_loopback
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few
from topk_platform.tracking.feed import check_tracking
from topk_platform.versions import loaded_version

__all__ = ["ask_nodes", "check_cluster", "check_nodes"]

_QUIET_SECONDS = 5.0  # before a line names the nodes that have not answered
_ANSWER_SECONDS = 300.0  # the first worker of a node fetches the packages, imports torch and reads the data
_NAMED = 4  # nodes in a line
_HEAD = "node:__internal_head__"


def check_nodes(
    study: Study, store: Store | None, patience: Patience, *, mixed: bool = False
) -> dict[str, str]:
    """Return the common environment of all nodes on which the study's trials fit.

    Answering takes neither a core nor a GPU, so nodes answer even if all of theirs are busy. A node that is lost before
    it answers, or that has not answered after five minutes, is left out if others have, and a line says so. Such nodes,
    and those that join later, are checked when a trial starts there, because each trial carries what it was planned
    for.

    Args:
        study: The study whose trials are to run.
        store: The store that every node must see; None if it is not asked for.
        patience: How long to wait for a node if none is there, or all are lost before they answer, by default a minute;
            and for answers, if it is longer than five minutes.
        mixed: Whether nodes may compute different bits; then it does not matter what their devices are.

    Raises:
        ClusterError: with all that is wrong on any node, or if none answers.
        StoreError: if the store cannot keep two drivers apart.
    """
    findings, environment = _look_at_nodes(study, store, patience)
    allowed = ("same bits", "gpus") if mixed else ()
    wrong = []
    for (is_wrong, check, finding, remedy), nodes in grouped(findings).items():
        where = f"{check}, {first_few(nodes, _NAMED)}: {finding}"
        if not is_wrong:
            patience.say(f"Note: {where}")
        elif check not in allowed:
            wrong.append(f"{where} ({remedy})")
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
    findings: list[Finding] = []
    opened: Store | None = None

    @contextmanager
    def noted(check: str) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            findings.append(Finding.of(check, DRIVER, str(error)))

    with noted("store"), _marked(Store.open(store)):
        opened = Store.open(store)
    with noted("tracking"):
        if mlflow not in (None, "none"):
            check_tracking(mlflow)
    with noted("cluster"), joined(address, study, Patience(0)), data_at(data):
        # Ray sets the variable by itself if it has a token.
        if not (
            is_loopback(ray.get_runtime_context().gcs_address)
            or os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
        ):
            findings.append(
                Finding.of("token", DRIVER, f"anyone who reaches {cluster_size()} can run code there")
            )
        findings += _look_at_nodes(study, opened, Patience(0))[0]
    return findings


def _look_at_nodes(
    study: Study, store: Store | None, patience: Patience
) -> tuple[list[Finding], dict[str, str]]:
    """Return what is wrong on the connected cluster's nodes, and the environment of most of their devices.

    Args:
        study: The study; nodes on which none of its trials fits are not asked.
        store: The store that every node must see; None if it is not asked for.
        patience: See :func:`check_nodes`.
    """
    data, code = str(data_folder()), {arm.name: loaded_version(arm) for arm in study.arms}
    with _marked(store) as (address, name):
        known = fingerprints(study.arms, data)
        question = Question("", study.arms, code, data, known, study.device, 0.0, address, name)
        answers = ask_nodes(question, trial_resources(study), patience)
    kinds = Counter(tuple(kind.items()) for answer in answers for kind in answer.environments)
    # In a tie the head decides, which comes first.
    expected = dict(kinds.most_common(1)[0][0]) if kinds else {}
    findings = [finding for answer in answers for finding in (*answer.findings, *_others(answer, expected))]
    return findings, expected


def _others(answer: Answer, expected: Mapping[str, str]) -> Iterator[Finding]:
    """Yield in what a node's devices differ from the expected environment."""
    for kind in answer.environments:
        differing = [
            f"{name} {kind.get(name)}, not {v}" for name, v in expected.items() if kind.get(name) != v
        ]
        if differing:
            yield Finding.of("same bits", answer.node, "; ".join(differing))


@contextmanager
def _marked(store: Store | None) -> Iterator[tuple[str, str]]:
    """Put a file into the store for as long as the block lasts; yield where it is, and its name.

    Two drivers are kept apart by a file that only one of them can create, so that is checked too.
    """
    if store is None:
        yield "", ""
        return
    store.check_writable()
    folder, name = store.existing, f".seen-{uuid.uuid4().hex}"
    first, again = (folder.create(name, b"") for _ in range(2))
    try:
        if again or not first:
            raise StoreError(
                f"store {store.uri!r} lets two processes create the same file, which would destroy a ledger: its "
                "server must support conditional writes (If-None-Match)"
            )
        yield folder.address, name
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
        for node in sorted(nodes_for(needs), key=lambda node: _HEAD not in node["Resources"]):
            name = f"{node['NodeManagerAddress']} ({'head' if _HEAD in node['Resources'] else node['NodeID'][:6]})"
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(examine)
            theirs = replace(question, node=name, gpus=node["Resources"].get("GPU", 0.0))
            asked[remote.remote(theirs)] = name
        answers = _answered(asked, patience)
        if not any(map(_counts, answers)):
            lost = [
                f"node {finding.node} {finding.finding}" for answer in answers for finding in answer.findings
            ]
            raise NotYetError(", ".join(lost) or "no node is left on which a trial fits")
        return answers

    return patience.until(ask)


def _answered(asked: Mapping[Any, str], patience: Patience) -> list[Answer]:
    """Return the answers in time, and for the other nodes that they are left out, or wrong if there is no answer."""
    began, waiting, silent, answers = patience.clock(), list(asked), False, dict[Any, Answer]()
    while waiting and (passed := patience.clock() - began) < max(_ANSWER_SECONDS, patience.seconds or 0.0):
        if passed >= _QUIET_SECONDS and not silent:
            silent = True
            names = first_few([asked[request] for request in waiting], _NAMED)
            patience.say(f"waiting for {names} to answer: starting, or busy")
        arrived, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=1.0)
        answers |= {request: _answer(asked[request], request) for request in arrived}
    check = "left out" if any(map(_counts, answers.values())) else "node"
    for request in waiting:
        ray.cancel(request)
        text = f"did not answer within {patience.clock() - began:.0f} s"
        answers[request] = Answer(asked[request], [Finding.of(check, asked[request], text)])
    return [answers[request] for request in asked]


def _counts(answer: Answer) -> bool:
    """Return whether a node is there, whatever it says."""
    return not any(finding.check == "left out" for finding in answer.findings)


def _answer(node: str, request: Any) -> Answer:
    try:
        answer: Answer = ray.get(request)
    except (NodeDiedError, TaskUnschedulableError):
        return Answer(node, [Finding.of("left out", node, "was lost before it answered")])
    except (RayError, ImportError) as error:
        return Answer(node, [Finding.of("node", node, reason_in(str(error)))])
    return answer
