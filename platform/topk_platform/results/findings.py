"""A study's findings in a small file: definition, cells, chosen values, descriptions of regimes, and origin.

It holds neither trials nor ranks, so it takes kilobytes instead of megabytes: enough for the table, for plots made
from a table, and for recommendations. To recompute results, use ``topk bundle``.
"""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from topk_platform.elsewhere import made_by, parse_json, parse_study, unzipped
from topk_platform.records import Tally
from topk_platform.results.cells import Cell, marked
from topk_platform.results.comparisons import Compared, Situation
from topk_platform.results.findings_schema import (
    CellData,
    ChoiceData,
    EstimateData,
    MadeData,
    PrecisionData,
    RunsData,
    TableData,
    TallyData,
    part_of,
)
from topk_platform.results.statistics import Estimate, Precision, p_of, t_quantile
from topk_platform.results.statistics.intervals import ONE_SEARCH
from topk_platform.results.table import ChosenValues, Table, row_and_column
from topk_platform.specs import Arm, Parameter, Study, digest
from topk_platform.specs.checks import check

if TYPE_CHECKING:
    from topk_platform.results.statistics import Covers

__all__ = ["Findings", "Situations", "comparisons", "searched_pairs"]

_FORMAT = 2
_KIND = "a file of findings, as `topk export --format findings` writes it"
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
            UserError: if it cannot be read, is something else, or unpacks to more than ``TOPK_FILE_GIB`` allows.
        """
        with made_by(file, _KIND):
            found = cls._of(parse_json(unzipped(file)))
            found.compared()  # of what it says only, which must be there
        return found

    @classmethod
    def _of(cls, told: Mapping[str, Any]) -> Findings:
        if told["format"] not in (1, _FORMAT):
            raise ValueError(f"format must be 1 or {_FORMAT}, got {told['format']!r}")
        study = parse_study(json.dumps(told["study"]))
        whole, made = part_of(TableData, told), part_of(MadeData, told["made"])
        arms = {row_and_column(study, whole.across, arm): arm for arm in study.arms}
        confirmed = {_place(one): _runs(part_of(RunsData, one).runs) for one in told["confirmations"]}
        table = Table(
            study=study,
            rows=tuple(dict.fromkeys(row for row, _ in arms)),
            columns=tuple(dict.fromkeys(column for _, column in arms)),
            cells=_judged_anew(study, arms, told["cells"]),
            choices={_place(one): tuple(map(_choice, one["chosen"])) for one in told["choices"]},
            across=whole.across,
            confirmations=confirmed,
            left=whole.left,
            tested=_tested(told.get("tested", {})),  # which files of earlier versions do not have
            units=_units(told.get("units", {})),
        )
        check(set(table.choices) | set(confirmed) <= arms.keys(), "every row and column must be of an arm")
        return cls(table, dict(map(_situation, told["situations"])), asdict(made))

    def compared(self) -> list[Compared]:
        """Return every searched loss beside the searched baseline, as ``topk recommend`` weighs them."""
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
    """Yield every searched loss beside its searched baseline, by top-K test accuracies, of regimes that are known.

    Args:
        table: A study's.
        situations: What its regimes are.
    """
    study = table.study
    for arm, baseline in searched_pairs(study):
        if (situation := situations.get((arm.regime.name, arm.k))) is None:
            continue
        place, beside = (row_and_column(study, table.across, one) for one in (arm, baseline))
        for metric in dict.fromkeys((f"top{arm.k}", *(m for m in study.show if m.startswith("top")))):
            cell, theirs = table.cells.get((*place, metric)), table.cells.get((*beside, metric))
            if cell is None or cell.difference is None or theirs is None:
                continue
            yield Compared(
                study=study.name,
                regime=arm.regime.name,
                model=arm.model.label,
                loss=arm.loss.label,
                baseline=baseline.loss.label,
                metric=metric,
                situation=situation,
                cell=cell,
                theirs=theirs.confirmed,
                values=_values(table, arm, place),
                searches=study.searches,
                kind=arm.regime.dataset,
                pretrained=bool(arm.model.options.get("weights")),
                setup=_setup(arm, baseline),
            )


def searched_pairs(study: Study) -> list[tuple[Arm, Arm]]:
    """Return the arms that tell of a loss, each with its baseline: both are searched, and the losses are two.

    Variants of a loss, which ablations compare, tell nothing of the loss: an arm whose loss is the baseline's, or one
    of several arms of the same loss in one place, unless its label is the loss's own name.
    """
    places: dict[tuple[str, str], list[Arm]] = {}
    for arm in study.arms:
        if arm.is_searched:
            places.setdefault((arm.regime.name, arm.model.label), []).append(arm)
    found = []
    for arms in places.values():
        named = Counter(arm.loss.name for arm in arms)
        for baseline in (arm for arm in arms if arm.loss.label == study.baseline):
            found += [
                (arm, baseline)
                for arm in arms
                if arm.loss.name != baseline.loss.name
                and (named[arm.loss.name] == 1 or arm.loss.label == arm.loss.name.rpartition(":")[2])
            ]
    return found


def _setup(arm: Arm, baseline: Arm) -> str:
    """Return the hash of a comparison apart from its situation; conditions are told by the situation."""
    losses = [(one.loss.name, one.loss.space, one.loss.fixed, one.loss.head) for one in (arm, baseline)]
    model, data = (arm.model.name, arm.model.options), (arm.regime.dataset, arm.regime.options)
    return digest((data, model, losses, arm.recipe, arm.metric, arm.protocol.sampler))


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
    confirmed = {(_place(one), one["metric"]): _tally(one["confirmed"]) for one in told}
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
    data = part_of(CellData, told)
    check(data.metric in study.tabled, f"metric must be one of {list(study.tabled)}, got {data.metric!r}")
    differences = {int(seed): value for seed, value in data.differences.items()}
    once = _once(arm)
    made = Cell(
        _estimate(told["value"], once),
        _estimate(told["difference"], once or (baseline is not None and _once(baseline)), differences),
    )
    return replace(
        made,
        **{name: getattr(data, name) for name in _COPIED},
        published=study.published_of(arm, data.metric),
        differences=differences,
        confirmed=_tally(told["confirmed"]),
        searched=_tally(told["searched"]),
        primary=data.metric in arm.objectives,
    )


def _once(arm: Arm) -> bool:
    return arm.is_searched and arm.repeats.count == 1


def _tally(told: Mapping[str, Any]) -> Tally:
    return Tally(**asdict(part_of(TallyData, told)))


def _choice(told: Mapping[str, Any]) -> ChosenValues:
    return ChosenValues(**asdict(part_of(ChoiceData, told)))


def _tested(told: Mapping[str, Any]) -> dict[str, int]:
    for column, images in told.items():
        check(type(images) is int and images >= 0, f"tested[{column!r}] must be a number, got {images!r}")
    return dict(told)


def _units(told: Mapping[str, Any]) -> dict[str, str]:
    for column, unit in told.items():
        check(isinstance(unit, str), f"units[{column!r}] must be a text, got {unit!r}")
    return dict(told)


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
    data = part_of(EstimateData, told)
    numbers = (getattr(data, name) for name in _NUMBERS)
    mean, half_width, low, high, p = (math.nan if number is None else number for number in numbers)
    covers = data.covers if data.covers.endswith(ONE_SEARCH) or not once else data.covers + ONE_SEARCH
    found = Estimate(mean, half_width, data.n, low, high, p, cast("Covers", covers))
    if "precision" not in told:
        return _of_format_1(found, list((differences or {}).values()))
    if told["precision"] is None:
        return found
    parts = asdict(part_of(PrecisionData, told["precision"]))
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
