"""How well findings of one search foretell one another: comparisons that two studies of letters made alike.

    python benchmarks/replicates.py

``one_search/`` holds the findings of five studies as they were shipped when each loss was searched once: ``letters``,
``letters_map``, ``letters_k``, ``letters_imbalance`` and ``letters_capacity``. Most were searched anew since then.

Two arms are the same if data, conditions, network, loss, search space, recipe and K are. Each study searched them anew,
once with a sampler seeded otherwise, so that a pair of such comparisons shows the luck of the search. Three judgements:

- ``as printed``: intervals of seeds and images, and marks by Holm's correction over a study's differences in a metric,
  as if the search had no luck;
- ``one search``: the same intervals, and no marks, which is today's rule for what was searched once;
- ``with luck``: the variance of one search's difference is added, as the *other* regimes' replicates estimate it.

Then all studies' searches are taken together as repeated ones, with intervals and marks as a table has them.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from topk_platform.results.findings import Findings
from topk_platform.results.statistics import Estimate, critical, holm, interval, pooled, prior_of
from topk_platform.results.statistics.tests import p_of
from topk_platform.results.table import Table, row_and_column
from topk_platform.specs import Arm
from topk_platform.specs.codec import canonical_json

FOLDER = Path(__file__).with_name("one_search")
WHOLE = 150  # images of each class in the training set


@dataclass(frozen=True)
class Found:
    """One study's comparison of an arm with the baseline.

    Args:
        study: The study's name.
        regime: What the data, the network and K are.
        loss: The arm's loss.
        cell: By metric the difference, whether it was marked, and the means of the arm and of the baseline.
    """

    study: str
    regime: str
    loss: str
    cell: Mapping[str, tuple[Estimate, str, float, float]]


def conditions(arm: Arm) -> object:
    """Return what is done to the training set, in one form for all studies."""
    shown: dict[str, object] = {"PerClass": WHOLE, "LabelNoise": 0.0}
    for condition in json.loads(canonical_json(arm.regime.conditions)):
        kind = condition.pop("type")
        if kind != "LongTail" or condition["ratio"] != 1:
            shown[kind] = condition
    return {
        name: next(iter(v.values())) if isinstance(v, dict) and len(v) == 1 else v
        for name, v in shown.items()
    }


def regime(arm: Arm) -> str:
    """Return what all losses of a column share."""
    model = {"name": arm.model.name, "options": arm.model.options}
    parts = (arm.regime.dataset, arm.regime.options, conditions(arm), model, arm.k, arm.recipe)
    return json.dumps([json.loads(canonical_json(part)) for part in parts], sort_keys=True)


def comparisons() -> Iterator[Found]:
    """Yield the comparisons of these findings in which both arms were searched, once each."""
    for file in sorted(FOLDER.glob("*.json.gz")):
        table = Findings.read(file).table
        study = table.study
        base = {(a.regime.name, a.model.label): a for a in study.arms if a.loss.label == study.baseline}
        marks = marked(table)
        for arm in study.arms:
            other = base.get((arm.regime.name, arm.model.label))
            if other in (None, arm) or not (searched_once(arm) and searched_once(other)):
                continue
            ours, theirs = (row_and_column(study, table.across, a) for a in (arm, other))
            cells = {}
            for metric, name in ((f"top{arm.k}", "top-K"), ("top1", "top-1")):
                cell, beside = table.cells.get((*ours, metric)), table.cells.get((*theirs, metric))
                if cell and cell.difference and cell.value and beside and beside.value:
                    mark = marks.get((*ours, metric), "")
                    cells[name] = cell.difference, mark, cell.value.mean, beside.value.mean
            loss = canonical_json((arm.loss.name, arm.loss.fixed, arm.loss.space))
            yield Found(study.name, regime(arm), loss, cells)


def searched_once(arm: Arm) -> bool:
    """Return whether one search chose an arm's values."""
    return arm.is_searched and arm.repeats.count == 1


def marked(table: Table) -> dict[tuple[str, str, str], str]:
    """Return marks as if searches had no luck: differences significant after Holm's correction in their metric."""
    result: dict[tuple[str, str, str], str] = {}
    for metric in {key[2] for key in table.cells}:
        tested = {k: c.difference for k, c in table.cells.items() if k[2] == metric and c.difference}
        corrected = holm({key: e.p for key, e in tested.items() if not math.isnan(e.p)})
        result |= {
            key: "better" if tested[key].mean > 0 else "worse" for key, p in corrected.items() if p < 0.05
        }
    return result


def alike(result: Sequence[Found]) -> list[list[Found]]:
    """Return the comparisons that several studies made, each with all that made it."""
    groups: dict[tuple[str, str], list[Found]] = {}
    for one in result:
        groups.setdefault((one.regime, one.loss), []).append(one)
    return [group for group in groups.values() if len({one.study for one in group}) > 1]


def columns(groups: Sequence[Sequence[Found]], metric: str) -> dict[str, dict[str, list[float]]]:
    """Return by regime and loss the means by study, of the losses and studies that make a full table."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for group in groups:
        for one in group:
            _, _, ours, theirs = one.cell[metric]
            row = table.setdefault(one.regime, {})
            row.setdefault("baseline", {})[one.study] = theirs
            row.setdefault(one.loss, {})[one.study] = ours
    full = {}
    for name, losses in table.items():
        studies = set.intersection(*(set(of) for of in losses.values()))
        if len(studies) > 1:
            full[name] = {loss: [of[study] for study in sorted(studies)] for loss, of in losses.items()}
    return full


def rest(table: Mapping[str, Mapping[str, Sequence[float]]], without: str) -> tuple[float, float]:
    """Return the variance of one search's difference by the regimes but one, and its degrees of freedom."""
    luck = pooled({name: losses for name, losses in table.items() if name != without})
    beside = {of.column: of.beside for of in luck.values()}
    freedom = sum(prior.freedom for prior in beside.values())
    return 2 * sum(prior.variance * prior.freedom for prior in beside.values()) / freedom, freedom


def disjoint(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether two intervals have nothing in common, each a mean and half a width."""
    return abs(one[0] - other[0]) > one[1] + other[1]


def half(result: Estimate, luck: tuple[float, float] | None) -> tuple[float, float]:
    """Return a difference and half its interval's width, with the luck of the search if that is given."""
    assert result.precision is not None
    parts = [*result.precision.parts(), *([luck] if luck else [])]
    return result.mean, critical(parts) * math.sqrt(sum(v for v, _ in parts))


def judged(groups: Sequence[Sequence[Found]], metric: str) -> None:
    """Print how often pairs are disjoint and marks recur."""
    table = columns(groups, metric)
    pairs = [
        (one.cell[metric], other.cell[metric], rest(table, one.regime))
        for group in groups
        for one, other in itertools.combinations(group, 2)
    ]
    plain = sum(disjoint(half(a[0], None), half(b[0], None)) for a, b, _ in pairs)
    wide = sum(disjoint(half(a[0], luck), half(b[0], luck)) for a, b, luck in pairs)
    marks = [(x[1], y[1]) for a, b, _ in pairs for x, y in ((a, b), (b, a)) if x[1]]
    moved = np.array([a[0].mean - b[0].mean for a, b, _ in pairs]) / math.sqrt(2)
    said = np.array([x[0].precision.error() for pair in pairs for x in pair[:2] if x[0].precision])
    errors = np.array([luck[0] for *_, luck in pairs])
    points = [100 * math.sqrt(float(np.mean(v))) for v in (moved**2, said**2, errors)]
    print(f"{metric}: {len(pairs)} pairs of identical comparisons")
    print(f"  a difference moves from search to search by {points[0]:.2f} points; its standard error says "
          f"{points[1]:.2f}; the luck of a search by the other regimes: {points[2]:.2f}")  # fmt: skip
    print(f"  disjoint 95 % intervals: as printed {plain}, with luck {wide}")
    recur = sum(mine == other for mine, other in marks)
    print(f"  marks: {recur} of {len(marks)} recur in the other study; today there is none")


def together(groups: Sequence[Sequence[Found]], metric: str) -> None:
    """Print what all studies' searches show together, as repeated ones."""
    table = columns(groups, metric)
    luck = pooled({name: {(name, loss): v for loss, v in losses.items()} for name, losses in table.items()})
    result = {}
    for name, losses in table.items():
        for loss, means in losses.items():
            if loss != "baseline":
                values = {i: a - b for i, (a, b) in enumerate(zip(means, losses["baseline"], strict=True), 1)}
                prior = prior_of([(1.0, luck[name, loss]), (-1.0, luck[name, "baseline"])])
                result[name, loss] = interval(values, searches=len(values), prior=prior)
    corrected = holm(
        {pair: p_of(e.mean, e.precision.parts()) for pair, e in result.items() if e and e.precision}
    )
    print(f"  together: {len(result)} comparisons of 2 to 4 searches each, {sum(p < 0.05 for p in corrected.values())} "
          "marked after Holm's correction")  # fmt: skip
    for pair, p in sorted(corrected.items(), key=lambda item: item[1])[:8]:
        e = result[pair]
        assert e is not None
        setup = json.loads(pair[0])
        print(f"    {json.loads(pair[1])[0]}, {setup[2]}: {100 * e.mean:+.1f} ± {100 * e.half_width:.1f} "
              f"({e.n} searches), p = {p:.2g}")  # fmt: skip


def main() -> None:
    """Print the judgements by the metric of the search and by the first guess."""
    groups = alike(list(comparisons()))
    for metric in ("top-K", "top-1"):
        judged(groups, metric)
        together(groups, metric)


if __name__ == "__main__":
    main()
