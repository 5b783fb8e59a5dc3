"""Short results of each arm, for the arms' runs in MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from topk_platform.records import ArmHistory, Row
from topk_platform.reports.plain_text import markdown_table
from topk_platform.results.intervals import Estimate
from topk_platform.results.table import Table
from topk_platform.specs import Arm, canonical_json, number_text
from topk_platform.specs.arm import described
from topk_platform.specs.checks import plural

__all__ = ["arms_to_json"]


def arms_to_json(table: Table, histories: Mapping[str, ArmHistory]) -> str:
    """Return JSON with what each arm came to, by its identity.

    This is its name, the metric and the configuration that were chosen by, its test metrics and a note in Markdown.

    Args:
        table: The study's table with all its arms.
        histories: Each arm's history, by the arm's identity.
    """
    cells = _arms_in(table)
    result = {
        arm_id: _arm_data(table, history.arm, cells[arm_id])
        for arm_id, history in histories.items()
        if arm_id in cells
    }
    return json.dumps(result, indent=1, sort_keys=True) + "\n"


def _arms_in(table: Table) -> dict[str, tuple[str, str]]:
    return {row["arm_id"]: key for key, rows in table.confirmations.items() for row in rows.values()}


def _arm_data(table: Table, arm: Arm, key: tuple[str, str]) -> dict[str, Any]:
    rows = list(table.confirmations[key].values())
    estimates = {
        metric: cell.value
        for metric in table.study.tabled
        if (cell := table.cells.get((*key, metric))) is not None and cell.value is not None
    }
    return {
        "name": arm.name,
        "metric": arm.metric,
        "parameters": {name: str(value) for name, value in described(arm).items()} | _common(rows),
        "metrics": {
            name: value for metric, e in estimates.items() for name, value in _numbers(metric, e).items()
        },
        "note": _note(table, arm, rows, estimates),
    }


def _common(rows: Sequence[Row]) -> dict[str, str]:
    """Return the parameters of the confirmations; if searches chose different values, all are listed."""
    result: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, value in json.loads(row["values"]).items():
            if value is not None:
                result.setdefault(name, {})[str(value)] = None
    return {name: ", ".join(values) for name, values in result.items()}


def _numbers(metric: str, estimate: Estimate) -> dict[str, float]:
    numbers = {f"test.{metric}.mean": estimate.mean, f"test.{metric}.n": float(estimate.n)}
    return numbers | ({f"test.{metric}.half_width": estimate.half_width} if estimate.n > 1 else {})


def _note(table: Table, arm: Arm, rows: Sequence[Row], estimates: Mapping[str, Estimate]) -> str:
    conditions = ", ".join(canonical_json(condition) for condition in arm.regime.conditions) or "none"
    lines = [
        f"**{arm.name}** of study {table.study.name}: the arm, with its trials below.",
        f"- data {arm.regime.dataset} {canonical_json(arm.regime.options)}, conditions {conditions}",
        f"- model {arm.model.name}, loss {arm.loss.name}, selected by {arm.metric} of the validation split",
        f"- parameters: the configuration that {plural(len(rows), 'fresh seed')} confirmed",
        "- metrics: `mean` over these seeds of the test split, `half_width` of its 95 % interval, `n` seeds",
    ]
    numbers = [
        (m, number_text(m, e.mean), number_text(m, e.half_width) if e.n > 1 else "", str(e.n), e.covers)
        for m, e in estimates.items()
    ]
    return "\n".join([*lines, "", markdown_table(("metric", "mean", "±", "n", "covers"), numbers)]) + "\n"
