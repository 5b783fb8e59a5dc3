"""Checks of all that a study needs from this machine or a cluster's nodes, before a study runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from topk_platform.code_version import references
from topk_platform.errors import ClusterError, UserError, masked
from topk_platform.records import Store
from topk_platform.running.cluster.address import host_and_port
from topk_platform.running.cluster.versions import OtherVersionError
from topk_platform.running.machine.requirements import platform_requirements
from topk_platform.running.preflight.doctor import checks
from topk_platform.running.preflight.doctor.facts import Facts, Question, examine
from topk_platform.running.preflight.doctor.results import DRIVER, HERE, CheckResult, Diagnosis, Node, merged
from topk_platform.running.preflight.doctor.shared_store import check_replies, check_store, token
from topk_platform.specs import Regime, Study
from topk_platform.specs.checks import check_place as check_named
from topk_platform.tracking import check_tracking

__all__ = ["diagnose"]

_PATIENCE, _PATIENCE_WITH_DATA = 120.0, 900.0

Answered = Sequence[tuple[Node, Facts]]


def diagnose(
    study: Study | None = None,
    *,
    store: str | Path = "runs",
    address: str | None = None,
    mlflow_uri: str | None = None,
    data: str | Path | None = None,
) -> Diagnosis:
    """Check this machine or, with an address, every node of a cluster for problems that would stop a study.

    This writes files of at most a MiB into the store and deletes them; it writes nothing else and trains nothing.

    Args:
        study: The study whose data and modules are checked.
        store: Folder or URI of the results.
        address: A Ray cluster's address; by default only this machine is checked, and Ray is not started.
        mlflow_uri: MLflow's tracking URI.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.

    Raises:
        UserError: for a blank argument or an invalid address. Problems of machines are results, not errors.

    Example:
        >>> diagnosis = diagnose(store="runs")
        >>> diagnosis.results[0].check, diagnosis.results[0].state
        ('machine', 'good')
    """
    check_named("store", str(store))
    if address not in (None, "auto"):
        host_and_port(address)
    asked = _Asked(study, _folder(data))
    opened, of_store = check_store(store, HERE if address is None else DRIVER)
    tracking = _tracking(mlflow_uri, opened, HERE if address is None else DRIVER)
    driver = examine(asked.question(opened))
    if address is None:
        return Diagnosis([*_here(asked, driver), of_store, tracking], driver)
    nodes, results = _cluster(asked, driver, opened, address)
    return Diagnosis(merged([*_of_driver(asked, driver), of_store, tracking, *results]), driver, nodes)


def _folder(data: str | Path | None) -> str:
    try:
        from topk_platform.data import data_at, data_folder  # noqa: PLC0415 - torch, which may be broken
    except (ImportError, OSError):
        return os.path.abspath(data or "data")
    with data_at(data):
        return str(data_folder())


@dataclass(frozen=True)
class _Asked:
    """The study, the data folder and the packages that a diagnosis checks."""

    study: Study | None
    folder: str
    requirements: Mapping[str, str] = field(default_factory=platform_requirements)

    @property
    def device(self) -> str:
        return "cpu" if self.study is None else self.study.device

    @property
    def references(self) -> list[str]:
        arms = () if self.study is None else self.study.arms
        return sorted({name for arm in arms for name in references(arm)})

    @property
    def regimes(self) -> list[Regime]:
        """One regime of each dataset, because regimes that share a dataset differ only in their conditions."""
        arms = () if self.study is None else self.study.arms
        kinds = {(arm.regime.dataset, repr(sorted(arm.regime.options.items()))): arm.regime for arm in arms}
        return list(kinds.values())

    @property
    def shared(self) -> bool:
        """Whether several trials are to run on a GPU."""
        study = self.study
        return study is not None and study.device == "cuda" and study.gpus < 1

    def question(self, store: Store | None = None, name: str = "") -> Question:
        return Question(
            packages=sorted({*self.requirements, *checks.DECIDING}),
            device=self.device,
            references=self.references,
            regimes=self.regimes,
            data=self.folder,
            store="" if store is None else store.existing.address,
            token=name,
        )


def _here(asked: _Asked, driver: Facts) -> Iterator[CheckResult]:
    here = Node(HERE, driver)
    yield from _of_machine(asked, driver, here, driver)
    yield from _of_all(asked, driver, [(here, driver)])
    yield from _of_study(asked, driver, HERE)


def _cluster(
    asked: _Asked, driver: Facts, store: Store | None, address: str
) -> tuple[Sequence[Node], list[CheckResult]]:
    # Ray, which checks of this machine alone do not need.
    from topk_platform.running.cluster.connecting import joined  # noqa: PLC0415
    from topk_platform.running.preflight.doctor.asking import ask_nodes, check_cluster  # noqa: PLC0415

    try:
        with joined(address, asked.study), token(store) as name:
            nodes = ask_nodes(
                asked.question(store, name), _PATIENCE_WITH_DATA if asked.regimes else _PATIENCE
            )
            results = [check_cluster(), *check_replies(store, nodes)]
    except OtherVersionError as error:
        return (), [CheckResult("cluster", "wrong", error.problem, error.remedy, [DRIVER])]
    except ClusterError as error:
        remedy = (
            "start one there with deploy/start-head.sh (docs/cluster.md), which makes a token that keeps others out, "
            "and export RAY_AUTH_MODE=token here; or leave out --address"
        )
        return (), [CheckResult("cluster", "wrong", str(error), remedy, [DRIVER])]
    return nodes, [*results, *_of_nodes(asked, driver, nodes)]


def _of_nodes(asked: _Asked, driver: Facts, nodes: Sequence[Node]) -> Iterator[CheckResult]:
    answered = [(node, node.facts) for node in nodes if node.facts is not None]
    for node in nodes:
        if node.facts is None:
            yield _of_silent(node, others=bool(answered))
    for node, facts in answered:
        yield from _of_machine(asked, driver, node, facts)
        yield from checks.check_clock(node)
    yield from _of_all(asked, driver, answered)


def _of_silent(node: Node, *, others: bool) -> CheckResult:
    if node.lost and others:
        remedy = "see Ray's logs there, unless it was taken away"
        return node.warning("node", node.problem, remedy)
    remedy = "see Ray's logs there; a node needs all that pip install 'topk-studies[platform]' brings"
    return node.wrong("node", node.problem, remedy)


def _of_machine(asked: _Asked, driver: Facts, node: Node, facts: Facts) -> Iterator[CheckResult]:
    yield from checks.check_machine(node, facts)
    yield from checks.check_python(driver, node, facts)
    yield from checks.check_versions(driver, node, facts, asked.requirements)
    yield from checks.check_code(driver, node, facts)
    yield from checks.check_modules(node, facts, asked.references)
    yield from checks.check_data(driver, node, facts, asked.folder)
    yield from checks.check_gpus(node, facts, asked.device, shared=asked.shared)
    yield from checks.check_disk(node, facts)
    yield from checks.check_token(node, facts)


def _of_driver(asked: _Asked, driver: Facts) -> Iterator[CheckResult]:
    """Check a machine that only starts a study and trains nothing."""
    node = Node(DRIVER, driver)
    yield from checks.check_machine(node, driver)
    yield from checks.check_versions(driver, node, driver, asked.requirements)
    yield from checks.check_modules(node, driver, asked.references)
    yield from checks.check_data(driver, node, driver, asked.folder)
    yield from checks.check_token(node, driver)
    yield from _of_study(asked, driver, DRIVER)


def _of_study(asked: _Asked, driver: Facts, where: str) -> Iterator[CheckResult]:
    """Make the first checks of ``topk plan`` and ``topk run``, unless something that they need is broken."""
    study = asked.study
    needed = ("environment", "code", "reference ", "data ")
    if study is None or any(problem.startswith(needed) for problem in driver.problems):
        return
    from topk_platform.data import data_at  # noqa: PLC0415 - torch, which may be broken
    from topk_platform.running.preflight.checks import check_study  # noqa: PLC0415
    from topk_platform.running.preflight.training_splits import notes_on_data  # noqa: PLC0415

    with data_at(asked.folder):
        try:
            check_study(study)
        except UserError as error:
            yield CheckResult("study", "wrong", str(error), "change the study as this says", [where])
            return
        notes = notes_on_data(study)
    for note in notes:
        yield CheckResult("study", "warning", note, "", [where])
    yield CheckResult(
        "study", "good", f"{study.name}: its arms can be trained, {len(study.arms)} in all", "", [where]
    )


def _of_all(asked: _Asked, driver: Facts, answered: Answered) -> Iterator[CheckResult]:
    yield from checks.check_bits(answered, driver, asked.device)
    yield from checks.check_any_gpu(answered, asked.device)


def _tracking(uri: str | None, store: Store | None, where: str) -> CheckResult:
    """Check the tracking server; only the driver writes to it."""
    if uri is None:
        return _tracking_by_default(store, where)
    try:
        check_tracking(uri)
    except UserError as error:
        return CheckResult(
            "tracking", "wrong", str(error), "start the server, or correct its address", [where]
        )
    return CheckResult("tracking", "good", f"{masked(uri)} answers", "", [where])


def _tracking_by_default(store: Store | None, where: str) -> CheckResult:
    if store is None or store.local is not None:
        return CheckResult("tracking", "good", "a sqlite database in the store", "", [where])
    finding = "none: an object store holds no sqlite database"
    return CheckResult("tracking", "warning", finding, "name an MLflow server with --mlflow", [where])
