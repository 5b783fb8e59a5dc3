"""A study's findings from a store: its table and its claims' results, with what its regimes' data are."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from topk_platform.data import data_at, load
from topk_platform.data.conditions import conditioned
from topk_platform.errors import UserError
from topk_platform.identity import environment_of
from topk_platform.results.decisions import of_store
from topk_platform.results.findings import Findings
from topk_platform.results.findings_schema import Situation
from topk_platform.results.from_store import Held, read
from topk_platform.specs import LabelNoise, Regime, Study

__all__ = ["findings", "situation_of"]


def findings(
    study: Study, *, store: str | Path = "runs", data: str | Path | None = None, note: str = ""
) -> Findings:
    """Return a study's findings from a store: its table, its claims' results and its context, without trials.

    Args:
        study: The study.
        store: Folder or URI of the results.
        data: The folder of datasets. The datasets are read to describe the regimes.
        note: A note to keep with the findings, such as the commit.

    Raises:
        UserError: if the store has no results of the study, no confirmation has ended, or a dataset is not on disk.

    Example:
        >>> from topk_studies import digits
        >>> result = findings(digits(), store="runs", note="two cores")  # doctest: +SKIP
        >>> Path("digits.json.gz").write_bytes(result.to_bytes())  # doctest: +SKIP
    """
    held = read(study, store, needed=True)
    study, table = held.study, held.table
    if held.changed or not table.confirmation_ends.completed:
        raise UserError(f"no confirmation of study {study.name} has ended, so there are no findings yet")
    situations, unread = {}, {}
    with data_at(held.data_folder(data)):
        for (name, k), regime in {(arm.regime.name, arm.k): arm.regime for arm in study.arms}.items():
            try:
                situations[name, k] = situation_of(regime, k)
            except UserError as error:
                unread[name] = f"{study.name}, {name}: its data cannot be read: {error}"
    if unread:
        raise UserError("; ".join(unread.values()))
    return Findings(table, situations, _made(held, note), of_store(held))


def situation_of(regime: Regime, k: int) -> Situation:
    """Return a regime's description: its classes, and their training images after its conditions.

    Args:
        regime: The regime.
        k: K, the number of guesses.

    Raises:
        UserError: if its data are not on disk.

    Example:
        >>> from topk_platform import LongTail
        >>> tail = situation_of(Regime("tail", "digits", (LongTail(10), LabelNoise(0.2))), 3)
        >>> tail.classes, tail.images < 600, 9 < tail.imbalance < 11, tail.noise, tail.k
        (10, True, True, 0.2, 3)
    """
    others = [condition for condition in regime.conditions if not isinstance(condition, LabelNoise)]
    source = load(regime).example
    dataset, wrong = conditioned(source, others, lambda _role: torch.Generator().manual_seed(0))
    counts = [count for count in dataset.class_counts.tolist() if count]
    kept = 1.0 - wrong  # the share of labels that no condition replaces
    for condition in regime.conditions:
        kept *= 1 - condition.probability if isinstance(condition, LabelNoise) else 1
    imbalance = max(counts) / min(counts)
    return Situation(dataset.classes, sum(counts), imbalance, round(1 - kept, 12), k)


def _made(held: Held, note: str) -> Mapping[str, Any]:
    of_arms = [(history.arm, row) for history in held.histories.values() for row in history.rows()]
    rows = [row for _, row in of_arms]
    fingerprints = {arm.regime.name: row["dataset_fingerprint"] for arm, row in of_arms}
    return {
        "trials": len(rows),
        "code_versions": sorted({row["code_version"] for row in rows}),
        "environments": sorted({environment_of(row) for row in rows}),
        "datasets": dict(sorted(fingerprints.items())),
        "package": importlib.metadata.version("topk-studies"),
        "note": note,
    }
