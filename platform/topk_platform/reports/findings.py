"""A study's findings in a small file: definition, cells, chosen values, descriptions of regimes, and origin.

It holds neither trials nor ranks, so it takes kilobytes instead of megabytes: enough for the table, for plots made
from a table, and for recommendations. To recompute results, use ``topk bundle``.
"""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError, reason
from topk_platform.records import Tally
from topk_platform.reports.cells import Cell, marked
from topk_platform.reports.recommending import Compared, Situation
from topk_platform.reports.statistics import Estimate, Precision, p_of, t_quantile
from topk_platform.reports.statistics.intervals import ONE_SEARCH
from topk_platform.reports.table import ChosenValues, Table, row_and_column
from topk_platform.specs import Arm, Parameter, Study

__all__ = ["Findings", "Situations", "comparisons"]

_FORMAT = 2
_NUMBERS = ("mean", "half_width", "low", "high", "p")
_COPIED = ("stopped", "improvement", "metric")
_PARTS = ("by_seeds", "by_images", "rows", "images", "groups", "borrowed")

Situations = Mapping[tuple[str, int], Situation]
"""The description of each regime at each K, by the regime's name and K."""


@dataclass(frozen=True, repr=False)
class Findings:
    """What a study found.

    Args:
        table: Its table; its confirmations have only status and key.
        situations: The descriptions of its regimes; missing for regimes whose data were not on disk.
        made: Its origin: ``trials``, ``code_versions``, ``environments``, ``datasets``, ``package`` and ``note``.
    """

    table: Table
    situations: Situations
    made: Mapping[str, Any]

    @property
    def study(self) -> Study:
        """The study, as it was defined."""
        return self.table.study

    @property
    def metrics(self) -> frozenset[str]:
        """The metrics kept: those shown in tables, and every arm's top-K accuracy."""
        return frozenset((*self.study.show, *(f"top{arm.k}" for arm in self.study.arms)))

    def to_bytes(self) -> bytes:
        """Return the file, gzipped JSON; the same for the same findings."""
        table = self.table
        told = {
            "format": _FORMAT,
            "study": json.loads(table.study.to_json()),
            "made": dict(self.made),
            "across": table.across,
            "left": table.left,
            "tested": dict(table.tested),
            "units": dict(table.units),
            "situations": [
                {"regime": regime, **asdict(what)} for (regime, _), what in self.situations.items()
            ],
            "cells": [_cell_data(p, cell) for p, cell in table.cells.items() if p[2] in self.metrics],
            "choices": [
                {**_at(p), "chosen": [asdict(one) for one in found]} for p, found in table.choices.items()
            ],
            "confirmations": [
                {**_at(place), "runs": {seed: [row["status"], row["key"]] for seed, row in rows.items()}}
                for place, rows in table.confirmations.items()
            ],
        }
        return gzip.compress(json.dumps(told, allow_nan=False, separators=(",", ":")).encode(), mtime=0)

    @classmethod
    def read(cls, file: str | Path) -> Findings:
        """Return the findings in a file that ``topk export STUDY --format findings`` wrote.

        Args:
            file: The file.

        Raises:
            UserError: if it cannot be read, or is something else.
        """
        try:
            told = json.loads(gzip.decompress(Path(file).read_bytes()))
            return cls._of(told)
        except OSError as error:
            raise UserError(f"{str(file)!r} must be a file of findings: {reason(error)}") from error
        except (ValueError, KeyError, TypeError, EOFError) as error:
            raise UserError(
                f"{str(file)!r} must be a file of `topk export --format findings`: {error!r}"
            ) from error

    @classmethod
    def _of(cls, told: Mapping[str, Any]) -> Findings:
        if told["format"] not in (1, _FORMAT):
            raise ValueError(f"format must be 1 or {_FORMAT}, got {told['format']!r}")
        study = Study.from_json(json.dumps(told["study"]))
        arms = {row_and_column(study, told["across"], arm): arm for arm in study.arms}
        confirmed = {_place(one): _runs(one["runs"]) for one in told["confirmations"]}
        table = Table(
            study=study,
            rows=tuple(dict.fromkeys(row for row, _ in arms)),
            columns=tuple(dict.fromkeys(column for _, column in arms)),
            cells=_judged_anew(study, arms, told["cells"]),
            choices={_place(one): tuple(ChosenValues(**c) for c in one["chosen"]) for one in told["choices"]},
            across=told["across"],
            confirmations=confirmed,
            left=told["left"],
            tested=told.get("tested", {}),  # which files of earlier versions do not have
            units=told.get("units", {}),
        )
        return cls(table, dict(map(_situation, told["situations"])), told["made"])

    def compared(self) -> list[Compared]:
        """Return every loss beside the baseline, as ``topk recommend`` weighs them."""
        return list(comparisons(self.table, self.situations))

    def told(self) -> str:
        """Return the findings' origin in one line."""
        made = self.made
        code = ", ".join(version[:8] for version in made["code_versions"])
        note = f"; {made['note']}" if made["note"] else ""
        return (
            f"{self.study.name}: {made['trials']} trials of code {code}, topk-studies {made['package']}{note}"
        )

    def _repr_html_(self) -> str:
        return self.table.to_html()

    def __str__(self) -> str:
        return f"{self.table}\n{self.told()}"

    __repr__ = __str__


def comparisons(table: Table, situations: Situations) -> Iterable[Compared]:
    """Yield every loss beside its baseline in top-K test accuracy, at the arms' own K, of regimes that are known.

    Args:
        table: A study's.
        situations: What its regimes are.
    """
    study = table.study
    if study.baseline is None:
        return
    for arm in study.arms:
        metric, place = f"top{arm.k}", row_and_column(study, table.across, arm)
        cell = table.cells.get((*place, metric))
        if cell is None or cell.difference is None or (arm.regime.name, arm.k) not in situations:
            continue
        yield Compared(
            study=study.name,
            regime=arm.regime.name,
            model=arm.model.label,
            loss=arm.loss.label,
            baseline=study.baseline,
            metric=metric,
            situation=situations[arm.regime.name, arm.k],
            cell=cell,
            theirs=table.cells[(*_beside(study, table, arm), metric)].confirmed,
            values=_values(table, arm, place),
        )


def _beside(study: Study, table: Table, arm: Arm) -> tuple[str, str]:
    """Return the place of the baseline that an arm is compared with."""
    same = (arm.regime.name, arm.model.label, study.baseline)
    other = next(a for a in study.arms if (a.regime.name, a.model.label, a.loss.label) == same)
    return row_and_column(study, table.across, other)


def _values(table: Table, arm: Arm, place: tuple[str, str]) -> tuple[Mapping[str, Parameter], ...]:
    choices = sorted(table.choices.get(place, ()), key=lambda choice: -choice.validation)
    found = [arm.loss.parameters(choice.values) for choice in choices]
    return tuple(found or [arm.loss.parameters({})])


def _at(place: Sequence[str]) -> dict[str, str]:
    return {"row": place[0], "column": place[1]}


def _place(told: Mapping[str, Any]) -> tuple[str, str]:
    return told["row"], told["column"]


def _cell_data(place: Sequence[str], cell: Cell) -> dict[str, Any]:
    return {
        **_at(place),
        **{name: getattr(cell, name) for name in _COPIED},
        "metric": place[2],
        "value": _estimate_data(cell.value),
        "difference": _estimate_data(cell.difference),
        "differences": dict(cell.differences),
        "confirmed": asdict(cell.confirmed),
        "searched": asdict(cell.searched),
    }


def _judged_anew(
    study: Study, arms: Mapping[tuple[str, str], Arm], told: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str, str], Cell]:
    """Return cells with the marks of today's rules, whatever those of the version were that wrote the file."""
    baselines = {(a.regime.name, a.model.label): a for a in arms.values() if a.loss.label == study.baseline}
    confirmed = {(_place(one), one["metric"]): Tally(**one["confirmed"]) for one in told}
    places = {arm.name: place for place, arm in arms.items()}
    found: dict[tuple[str, str, str], tuple[Cell, Tally]] = {}
    for one in told:
        place, metric = _place(one), one["metric"]
        arm = arms[place]
        other = baselines.get((arm.regime.name, arm.model.label))
        theirs = Tally() if other is None else confirmed.get((places[other.name], metric), Tally())
        found[(*place, metric)] = _cell(one, study, arm, other), theirs
    return marked(found, study.equivalence / 100)


def _cell(told: Mapping[str, Any], study: Study, arm: Arm, baseline: Arm | None) -> Cell:
    differences = {int(seed): value for seed, value in told["differences"].items()}
    once = _once(arm)
    made = Cell(
        _estimate(told["value"], once),
        _estimate(told["difference"], once or (baseline is not None and _once(baseline)), differences),
    )
    return replace(
        made,
        **{name: told[name] for name in _COPIED},
        published=study.published_of(arm, told["metric"]),
        differences=differences,
        confirmed=Tally(**told["confirmed"]),
        searched=Tally(**told["searched"]),
        primary=told["metric"] in arm.objectives,
    )


def _once(arm: Arm) -> bool:
    return arm.is_searched and arm.repeats.count == 1


def _estimate_data(found: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate as JSON knows it, which has neither NaN nor infinity."""
    if found is None:
        return None
    numbers = {name: getattr(found, name) for name in _NUMBERS}
    finite = {name: None if math.isnan(value) else value for name, value in numbers.items()}
    return {**finite, "n": found.n, "covers": found.covers, "precision": _precision_data(found.precision)}


def _precision_data(found: Precision | None) -> dict[str, Any] | None:
    if found is None:
        return None
    parts = {name: getattr(found, name) for name in _PARTS}
    return {**parts, "images": None if math.isinf(found.images) else found.images}


def _estimate(
    told: Mapping[str, Any] | None, once: bool, differences: Mapping[int, float] | None = None
) -> Estimate | None:
    if told is None:
        return None
    mean, half_width, low, high, p = (math.nan if told[name] is None else told[name] for name in _NUMBERS)
    covers = (
        told["covers"] if told["covers"].endswith(ONE_SEARCH) or not once else told["covers"] + ONE_SEARCH
    )
    found = Estimate(mean, half_width, told["n"], low, high, p, covers)
    if "precision" not in told:
        return _of_format_1(found, list((differences or {}).values()))
    parts = told["precision"]
    if parts is None:
        return found
    images = math.inf if parts["images"] is None else parts["images"]
    return replace(found, precision=Precision(**{**parts, "images": images}))


def _of_format_1(found: Estimate, differences: Sequence[float]) -> Estimate:
    """Return an estimate of a file of format 1, which has no variances, with its variances and today's interval.

    The seeds' part A is that of the differences. The images' part I follows from the half-width, which was
    ``t √(A + I)``, with ``(A + I) / A`` times as many degrees of freedom as there are seeds less 1. Nothing is known of
    groups of images.
    """
    count = len(differences)
    if count < _TWO or math.isnan(found.half_width):
        return found
    by_seeds = statistics.variance(differences) / count

    def half(by_images: float) -> float:
        whole = by_seeds + by_images
        return t_quantile((count - 1) * whole / by_seeds) * math.sqrt(whole) if by_seeds else 0.0

    low, high = 0.0, found.half_width**2
    while by_seeds and high - low > _FINE * found.half_width**2:
        middle = (low + high) / 2
        low, high = (middle, high) if half(middle) < found.half_width else (low, middle)
    precision = Precision(by_seeds, low, count, math.inf)
    wide = precision.critical() * precision.error()
    ends = found.mean - wide, found.mean + wide
    return replace(
        found,
        half_width=wide,
        low=ends[0],
        high=ends[1],
        p=p_of(found.mean, precision.parts()),
        precision=precision,
    )


_TWO, _FINE = 2, 1e-12


def _runs(told: Mapping[str, Sequence[str]]) -> dict[int, dict[str, Any]]:
    return {int(seed): {"status": status, "key": key} for seed, (status, key) in told.items()}


def _situation(told: Mapping[str, Any]) -> tuple[tuple[str, int], Situation]:
    found = Situation(**{field.name: told[field.name] for field in fields(Situation)})
    return (told["regime"], found.k), found
