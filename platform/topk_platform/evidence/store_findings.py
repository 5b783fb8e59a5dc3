"""A study's findings from a store, for use without the store."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError
from topk_platform.evidence.recommending import situations_of
from topk_platform.identity import environment_of
from topk_platform.results.contrast_results import of_store
from topk_platform.results.findings import Findings
from topk_platform.results.from_store import Held, read
from topk_platform.specs import Study

__all__ = ["findings"]


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
    table = held.table
    if not table.confirmed.completed:
        raise UserError(f"no confirmation of study {study.name} has ended, so there are no findings yet")
    left_out: dict[str, str] = {}
    from topk_platform.data import data_at  # noqa: PLC0415 - torch

    with data_at(data):
        situations = situations_of(study.name, study.arms, left_out)
    if left_out:
        raise UserError("; ".join(f"{regime}: {why}" for regime, why in left_out.items()))
    return Findings(table, situations, _made(held, note), of_store(held))


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
