"""The results of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from topk_platform.running.preflight.doctor.facts import Facts

__all__ = ["DRIVER", "HERE", "CheckResult", "Diagnosis", "Node", "State", "merged"]

DRIVER, HERE = "driver", "here"
"""Names for this machine: as the driver of a cluster, and alone."""

State = Literal["good", "warning", "wrong"]


@dataclass(frozen=True)
class Node:
    """A node of a cluster, or this machine.

    Args:
        name: The node's name.
        facts: Its answers; None if it did not answer.
        problem: Why it did not answer.
        gpus: How many GPUs Ray counts there.
        behind: By how many seconds its clock is behind the driver's; negative if ahead; None if it is not known.
        lost: Whether it left the cluster while it was asked.
    """

    name: str
    facts: Facts | None
    problem: str = ""
    gpus: float = 0.0
    behind: float | None = 0.0
    lost: bool = False

    def good(self, check: str, finding: str) -> CheckResult:
        """Return a check's good result for this node."""
        return CheckResult(check, "good", finding, "", [self.name])

    def warning(self, check: str, finding: str, remedy: str) -> CheckResult:
        """Return a check's warning for this node; a study can still run here."""
        return CheckResult(check, "warning", finding, remedy, [self.name])

    def wrong(self, check: str, finding: str, remedy: str) -> CheckResult:
        """Return a check's bad result for this node; it would stop a study here or change its results."""
        return CheckResult(check, "wrong", finding, remedy, [self.name])


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, shown as one line.

    Args:
        check: The name of the check.
        state: ``"good"``; ``"warning"`` if it works but may surprise; ``"wrong"`` if it stops a study or changes its
            results.
        finding: The check's message, in one line.
        remedy: What to do about it; empty if the state is good or nothing needs to be done.
        nodes: The names of the nodes concerned, or ``"driver"``.
    """

    check: str
    state: State
    finding: str
    remedy: str = ""
    nodes: Sequence[str] = ()


@dataclass(frozen=True)
class Diagnosis:
    """The result of all checks.

    Args:
        results: The results of the checks.
        driver: This machine's answers.
        nodes: The cluster's nodes; empty without a cluster.
    """

    results: Sequence[CheckResult]
    driver: Facts
    nodes: Sequence[Node] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong; there may be warnings."""
        return all(result.state != "wrong" for result in self.results)


def merged(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the results by check; results that are equal on several nodes are merged into one.

    Example:
        >>> two = [CheckResult("clock", "good", "right", nodes=[name]) for name in ("a", "b")]
        >>> merged(two)[0].nodes
        ['a', 'b']
    """
    where: dict[tuple[str, State, str, str], list[str]] = {}
    for one in results:
        where.setdefault((one.check, one.state, one.finding, one.remedy), []).extend(one.nodes)
    order = {check: rank for rank, check in enumerate(dict.fromkeys(check for check, *_ in where))}
    unique = [CheckResult(*said, nodes=list(dict.fromkeys(nodes))) for said, nodes in where.items()]
    return sorted(unique, key=lambda result: order[result.check])
