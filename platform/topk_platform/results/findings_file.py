"""The file of a study's findings: the data that are written of a table, and the table that is read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

from topk_platform.protocol import Tally
from topk_platform.results.cells import Cell, CellKey, marked
from topk_platform.results.decisions import ContrastResult
from topk_platform.results.findings_schema import (
    CellData,
    ContrastData,
    EstimateData,
    MadeData,
    PrecisionData,
    RunsData,
    Situation,
    Situations,
    TableData,
    part_of,
)
from topk_platform.results.intervals import Estimate
from topk_platform.results.runs import IMAGES
from topk_platform.results.significance import Precision
from topk_platform.results.table import ChosenValues, Table, row_and_column
from topk_platform.specs import Arm, Study
from topk_platform.specs.checks import check
from topk_platform.trust import parse_study

if TYPE_CHECKING:
    from topk_platform.results.intervals import Covers

__all__ = ["findings_data", "findings_of"]

_FORMAT = 2
_NUMBERS = ("mean", "half_width", "low", "high", "p")


def findings_data(
    table: Table, situations: Situations, made: Mapping[str, Any], contrasts: Sequence[ContrastResult]
) -> dict[str, Any]:
    """Return findings as JSON data; the arguments are those of :class:`~.findings.Findings`.

    The cells are those of the metrics shown in tables, and of every arm's top-K and selecting ones: Holm's correction
    in the metric of the search is for the differences of all arms, whether tables show it or not.
    """
    arms = table.study.arms
    kept = {*table.study.show, *(metric for arm in arms for metric in (f"top{arm.k}", arm.metric))}
    return {
        "format": _FORMAT,
        "study": json.loads(table.study.to_json()),
        "made": dict(made),
        "across": table.across,
        "left": table.left,
        "tested": {column: count for column, (count, _) in table.test_images.items()},
        "units": {column: what for column, (_, what) in table.test_images.items() if what != IMAGES},
        "situations": [{"regime": regime, **asdict(what)} for (regime, _), what in situations.items()],
        "cells": [_cell_data(p, cell) for p, cell in table.cells.items() if p[2] in kept],
        "choices": [
            {"row": row, "column": column, "chosen": list(map(asdict, chosen))}
            for (row, column), chosen in table.choices.items()
        ],
        "confirmations": [
            {
                "row": row,
                "column": column,
                "runs": {seed: [run["status"], run["key"]] for seed, run in runs.items()},
            }
            for (row, column), runs in table.confirmations.items()
        ],
        "contrasts": [_finite(asdict(result)) for result in contrasts],
    }


def _cell_data(key: CellKey, cell: Cell) -> dict[str, Any]:
    return {
        **dict(zip(("row", "column", "metric"), key, strict=True)),
        "value": cell.value and _finite(asdict(cell.value)),
        "difference": cell.difference and _finite(asdict(cell.difference)),
        "differences": dict(cell.differences),
        "confirmed": asdict(cell.confirmed),
        "searched": asdict(cell.searched),
    }


def _finite(value: Any) -> Any:
    """Return JSON data with None in the place of NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def findings_of(
    data: Mapping[str, Any],
) -> tuple[Table, Situations, dict[str, Any], list[ContrastResult]]:
    """Return the table, situations, origin and contrasts in a file's data; the types of every part are checked.

    Args:
        data: The file's JSON data.

    Raises:
        UserError, KeyError, TypeError, ValueError: if a part is missing, of another type or out of range.
    """
    if data["format"] != _FORMAT:
        raise ValueError(
            f"format must be {_FORMAT}, got {data['format']!r}; `topk export STUDY --format findings "
            "--to FILE` writes the file again"
        )
    study = parse_study(json.dumps(data["study"]))
    whole, made = part_of(TableData, data), part_of(MadeData, data["made"])
    arms = {row_and_column(study, whole.across, arm): arm for arm in study.arms}
    confirmed = {_named(saved): _runs(part_of(RunsData, saved).runs) for saved in data["confirmations"]}
    table = Table(
        study=study,
        rows=tuple(dict.fromkeys(row for row, _ in arms)),
        columns=tuple(dict.fromkeys(column for _, column in arms)),
        cells=_marked(study, arms, data["cells"]),
        choices={
            _named(saved): tuple(part_of(ChosenValues, chosen) for chosen in saved["chosen"])
            for saved in data["choices"]
        },
        across=whole.across,
        confirmations=confirmed,
        left=whole.left,
        test_images={c: (count, whole.units.get(c, IMAGES)) for c, count in whole.tested.items()},
        stored=False,
    )
    check(
        set(table.choices) | set(confirmed) <= arms.keys(),
        "every row and column must belong to an arm of the study",
    )
    contrasts = [
        ContrastResult(_estimate(saved["estimate"]), **asdict(part_of(ContrastData, saved)))
        for saved in data["contrasts"]
    ]
    check(
        len(contrasts) == sum(len(claim.contrasts) for claim in study.claims),
        "contrasts must be those of the study's claims",
    )
    return table, dict(map(_situation, data["situations"])), asdict(made), contrasts


def _named(data: Mapping[str, Any]) -> tuple[str, str]:
    return data["row"], data["column"]


def _marked(
    study: Study, arms: Mapping[tuple[str, str], Arm], data: Sequence[Mapping[str, Any]]
) -> dict[CellKey, Cell]:
    """Return cells with marks by the present rules, whichever version wrote the file."""
    keys = {arm.name: key for key, arm in arms.items()}
    cells = {(*_named(saved), saved["metric"]): _cell(saved, study, arms[_named(saved)]) for saved in data}
    result: dict[CellKey, tuple[Cell, Tally]] = {}
    for key, cell in cells.items():
        column = arms[key[:2]].name.rpartition("/")[0]
        baseline = cells.get((*keys.get(f"{column}/{study.baseline}", ("", "")), key[2]))
        result[key] = cell, Tally() if baseline is None else baseline.confirmed
    return marked(result, study.equivalence / 100)


def _cell(saved: Mapping[str, Any], study: Study, arm: Arm) -> Cell:
    data = part_of(CellData, saved)
    check(data.metric in study.tabled, f"metric must be one of {list(study.tabled)}, got {data.metric!r}")
    return Cell(
        _estimate(saved["value"]),
        _estimate(saved["difference"]),
        metric=data.metric,
        published=study.published_of(arm, data.metric),
        differences={int(seed): value for seed, value in data.differences.items()},
        confirmed=part_of(Tally, saved["confirmed"]),
        searched=part_of(Tally, saved["searched"]),
        primary=data.metric == arm.metric,
    )


def _estimate(saved: Mapping[str, Any] | None) -> Estimate | None:
    if saved is None:
        return None
    data = part_of(EstimateData, saved)
    numbers = (getattr(data, name) for name in _NUMBERS)
    mean, half_width, low, high, p = (math.nan if number is None else number for number in numbers)
    result = Estimate(mean, half_width, data.n, low, high, p, cast("Covers", data.covers))
    if saved["precision"] is None:
        return result
    parts = asdict(part_of(PrecisionData, saved["precision"]))
    images = math.inf if parts["images"] is None else parts["images"]
    return replace(result, precision=Precision(**{**parts, "images": images}))


def _runs(data: Mapping[str, Sequence[str]]) -> dict[int, dict[str, Any]]:
    return {int(seed): {"status": status, "key": key} for seed, (status, key) in data.items()}


def _situation(data: Mapping[str, Any]) -> tuple[tuple[str, int], Situation]:
    result = part_of(Situation, data)
    return (data["regime"], result.k), result
