"""Questions to a cluster's nodes before anything starts: their environment, and whether they see the store."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import ray
from ray.exceptions import RayError

from topk_platform.errors import ClusterError, StoreError
from topk_platform.records import Store
from topk_platform.running.cluster.capacity import LOST, nodes_for, pinned_to, trial_resources
from topk_platform.running.cluster.patience import NotYetError, Patience
from topk_platform.running.cluster.reasons import reason_in
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few
from topk_platform.training import environment

__all__ = ["as_options", "check_shared", "common_environment"]

P = ParamSpec("P")
T = TypeVar("T")

_LACKS = re.compile(r"No module named '(\w+)")
_QUIET_SECONDS = 5.0  # before a line names the nodes that have not answered
_NAMED = 4  # nodes in a line
_ANSWER_SECONDS = 120.0  # the first worker of a node fetches the packages and imports torch


def common_environment(study: Study, patience: Patience | None = None) -> dict[str, str]:
    """Return the common environment of all nodes on which the study's trials fit.

    Answering takes no core, so nodes answer even if all their cores are busy. If answering takes a GPU, nodes with busy
    GPUs are not waited for once one node has answered. These nodes, and nodes that join later, are checked when a trial
    starts there, because each trial carries the environment that it was planned for.

    Args:
        study: Says what a trial needs.
        patience: How long to wait for a node if all nodes that were asked are lost before they answer, by default a
            minute. Nodes have at least two minutes to answer, and by default no limit.

    Raises:
        ClusterError: if two nodes differ, naming both and the difference, a node has no GPU that torch can use, or
            none answers in time.
    """
    needs = trial_resources(study)
    held = {name: amount for name, amount in needs.items() if name != "CPU"}
    (first, expected), *others = _ask(needs, held, patience, _environment, study.device)
    for name, actual in others:
        differing = [
            f"{key} {value} and {actual[key]}" for key, value in expected.items() if actual[key] != value
        ]
        if differing:
            raise ClusterError(
                f"nodes {first} and {name} would not compute the same bits: {'; '.join(differing)}. Take machines "
                "of one kind with the same versions, choose one kind of GPU with --accelerator, or let machines "
                "differ with --mixed: the table then says so"
            )
    return expected


def _environment(device: str) -> dict[str, str]:
    return environment(device)


def check_shared(store: Store, study: Study, patience: Patience | None = None) -> None:
    """Raise ``StoreError`` if the store is a folder of this machine that a node cannot see.

    Each node is asked to read a file that was just written there, because it may have another folder of the same name.
    On nodes that join later, each trial looks for the study's mark, see :class:`~topk_platform.records.StoreKeeper`.
    """
    if store.local is None:
        return
    folder, name = store.existing, f".seen-{uuid.uuid4().hex}"
    folder.write(name, name.encode())
    try:
        answers = _ask(trial_resources(study), {}, patience, _reads, str(Path(folder.root, name)))
    finally:
        folder.delete(name)
    if blind := sorted({node for node, content in answers if content != name}):
        raise StoreError(
            f"store {store.uri!r} is a folder that node {', '.join(blind)} does not see: give --store a folder that "
            "all machines share, or s3://, gs:// or az://"
        )


def _reads(path: str) -> str:
    """Return the content of a file; empty if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _ask(
    needs: Mapping[str, float],
    held: Mapping[str, float],
    patience: Patience | None,
    question: Callable[P, T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> list[tuple[str, T]]:
    """Return the answers of the nodes that answer, each with the node's address.

    A node that is lost before it answers is left out, and a line says so. If no node is left, wait for one.

    Args:
        needs: The resources that a node must have to be asked.
        held: The resources that answering takes.
        patience: How long to wait for a node; by default a minute.
        question: The function that each node runs.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    patience = patience or Patience()

    def ask() -> list[tuple[str, T]]:
        asked = {}
        for node in nodes_for(needs):
            remote = ray.remote(**as_options(held), scheduling_strategy=pinned_to(node))(question)
            asked[remote.remote(*args, **kwargs)] = node["NodeManagerAddress"]
        if not asked:
            raise NotYetError("no node is left on which a trial fits")
        return _answers(asked, patience)

    return patience.until(ask)


def _answers(asked: Mapping[Any, str], patience: Patience) -> list[tuple[str, Any]]:
    """Return the answers of those nodes that are there; raise ``NotYetError`` if all are lost.

    Args:
        asked: The nodes' addresses, by Ray's reference to each answer.
        patience: Reports each node that is lost, and nodes that are slow to answer.
    """
    good, lost = list[Any](), list[Any]()
    for answered in _arrivals(asked, patience):
        for answer in answered:
            (lost if _is_lost(answer) else good).append(answer)
        if good:
            break
    _cancel(one for one in asked if one not in (*good, *lost))
    lines = [f"node {asked[answer]} was lost before it answered" for answer in lost]
    if not good:
        raise NotYetError(", ".join(lines))
    for line in lines:
        patience.say(f"{line}, and is left out")
    return [(asked[answer], _answer(answer, asked[answer])) for answer in good]


def _arrivals(asked: Mapping[Any, str], patience: Patience) -> Iterator[list[Any]]:
    """Yield the requests with new answers: all that are answered within two minutes, then one after another.

    Raises:
        ClusterError: if no further answer comes in time.
    """
    answered, waiting = ray.wait(list(asked), num_returns=len(asked), timeout=_QUIET_SECONDS)
    if waiting:
        patience.say(f"waiting for {_nodes([asked[one] for one in waiting])} to answer: starting, or busy")
        more, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_ANSWER_SECONDS)
        answered = [*answered, *more]
    yield answered
    limit = None if patience.seconds is None else max(_ANSWER_SECONDS, patience.seconds)
    while waiting:
        answered, waiting = ray.wait(waiting, timeout=None if limit is None else limit - _ANSWER_SECONDS)
        if not answered:
            _cancel(waiting)
            raise ClusterError(
                f"{_nodes([asked[one] for one in waiting])} did not answer within {limit:g} s (longer with --wait): "
                f"`topk plan STUDY --address {ray.get_runtime_context().gcs_address}` says what is wrong with them"
            )
        yield answered


def _cancel(requests: Iterable[Any]) -> None:
    for request in requests:
        ray.cancel(request)


def _nodes(names: Sequence[str]) -> str:
    return f"node{'s' if len(names) > 1 else ''} {first_few(names, _NAMED)}"


def _is_lost(answer: Any) -> bool:
    try:
        ray.get(answer)
    except LOST:
        return True
    except RayError:  # raised again when the answer is used
        return False
    return False


def as_options(held: Mapping[str, float]) -> dict[str, Any]:
    """Return the resources that a task holds on a node, as Ray's options.

    Example:
        >>> as_options({"CPU": 2, "GPU": 0.25, "accelerator_type:L4": 0.001})
        {'num_cpus': 2, 'num_gpus': 0.25, 'resources': {'accelerator_type:L4': 0.001}}
    """
    others = {name: amount for name, amount in held.items() if name not in ("CPU", "GPU")}
    return {"num_cpus": held.get("CPU", 0), "num_gpus": held.get("GPU", 0), "resources": others}


def _answer(answer: Any, name: str) -> Any:
    try:
        return ray.get(answer)
    except RayError as error:
        reason = reason_in(str(error))
        raise ClusterError(
            f"node {name} cannot train the study's trials: {reason}{_remedy(str(error))}"
        ) from error


def _remedy(said: str) -> str:
    """Return how a node gets the module that it lacks, if its message names one.

    ``topk run`` sends this package and the user's own modules. If the caller has connected to Ray, the nodes have the
    modules that this call has sent. What these modules import must be installed.
    """
    if (module := _LACKS.search(said)) is None:
        return ""
    if module[1].startswith("topk_"):
        return (
            "; connect with ray.init(..., runtime_env={'py_modules': [topk_losses, topk_platform]}), or let run() "
            "connect by its address=, which sends it"
        )
    return (
        "; install it on every node: pip install 'topk-studies[platform]' brings all that this package needs"
    )
