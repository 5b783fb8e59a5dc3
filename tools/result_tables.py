"""The tables of the pages of results, made from the shipped findings.

    python tools/result_tables.py [--check]

A page has a line such as ``<!-- cells letters top5 noise-* -->`` before each table, and ``<!-- end -->`` behind it.
What stands between them is written anew: ``cells STUDY METRIC [REGIMES]`` has the cells of a study, ``averages LOSS
METRIC`` the difference of a loss to cross-entropy, averaged over the regimes of each kind of data, with a second line
in which studies are the rows, and ``claims STUDY`` the verdicts on a study's claims. With ``--check`` nothing is
written, and the exit code says whether a page is stale.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import numpy as np
from scipy import stats

from topk_platform.results.cells import Cell
from topk_platform.results.findings import Findings
from topk_platform.results.intervals import Estimate, means_of_searches, usual_variance
from topk_platform.results.significance import Part, Precision, critical
from topk_platform.results.table import row_and_column
from topk_platform.specs import scale_of
from topk_studies import evidence, findings_files

__all__ = ["averages", "filled", "selected"]

PAGES = Path(__file__).parents[1] / "docs" / "results"
_DIRECTIVE = re.compile(r"(<!-- (cells|averages|claims) ([^>]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_MARKS = {("better", True): " ▲", ("worse", True): " ▼", ("better", False): " △", ("worse", False): " ▽"}
KINDS = {"letters": "letters", "kanji": "characters", "photos": "photos"}
"""The kinds of data by the beginnings of their studies' names."""
NEW = "again"
"""The end of the names of studies whose claims were written before they ran: they have rows of their own."""
LEAST_STUDIES = 3
"""With fewer studies there is no line in which they are the rows."""
_LISTED = 6
"""So many numbers of a claim are listed; of more the least and the largest mean are."""
NETWORKS = ("mlp", "mlp-32", "mlp-128", "mlp-512", "linear")
"""The networks that learn from pixels without convolutions, or from the features of a frozen network."""


@dataclass(frozen=True)
class Average:
    """A difference to cross-entropy, averaged over regimes, in points.

    Args:
        mean: Its mean; all regimes count alike.
        half_width: Half the width of its 95 % interval.
        ahead: In how many rows the difference is above 0.
        rows: How many rows there are: the searches of each regime, or the studies.
        regimes: How many regimes, of all studies together.
    """

    mean: float
    half_width: float
    ahead: int
    rows: int
    regimes: int


@cache
def findings_of(name: str) -> Findings:
    """Return the shipped findings of a study."""
    return evidence(name)[0]


def selected(
    kind: str, loss: str, metric: str, noise: float, new: bool = False
) -> dict[str, dict[str, Cell]]:
    """Return the cells that an average is over, by study and by ``regime/model``.

    They are of studies with repeated searches, of networks in :data:`NETWORKS`, of K = 5, of classes with equally many
    images, and of labels that are right, or redrawn among look-alikes with one probability.
    """
    result: dict[str, dict[str, Cell]] = {}
    for name in findings_files():
        if not name.startswith(kind) or name.endswith(NEW) != new:
            continue
        study = findings_of(name)
        for arm in study.study.arms:
            situation = study.situations.get((arm.regime.name, arm.k))
            if situation is None or arm.loss.label != loss or arm.protocol.searches < 3 or arm.k != 5:
                continue
            alike = situation.imbalance < 1.01 and math.isclose(situation.noise, noise, abs_tol=1e-9)
            if alike and arm.model.label in NETWORKS and not arm.regime.name.startswith("all"):
                cell = study.table.cells.get((*row_and_column(study.study, study.table.across, arm), metric))
                if cell is not None and cell.difference is not None and cell.difference.precision is not None:
                    result.setdefault(name, {})[arm.name.rpartition("/")[0]] = cell
    return result


def averages(cells: Mapping[str, Mapping[str, Cell]], metric: str = "top5") -> Average:
    """Return the mean of the cells' differences, with the interval over searches and test images.

    Each study's regimes are averaged as a claim's contrast is, by the rules of ``docs/statistics.md``. Studies are
    independent in their searches. The images' parts are taken as fully correlated, because studies share test images:
    their standard errors add up.
    """
    regimes = sum(map(len, cells.values()))
    mean, images, parts, freedom = 0.0, 0.0, list[Part](), math.inf
    for name, own in cells.items():
        estimate, share = estimate_of(name, own, metric), len(own) / regimes
        assert estimate.precision is not None  # noqa: S101 - cells without one are not selected
        (by_searches, rows), (by_images, groups) = estimate.precision.parts()
        mean += share * estimate.mean
        parts.append((share**2 * by_searches, rows))
        images += share * math.sqrt(by_images)
        freedom = min(freedom, groups)
    parts.append((images**2, freedom))
    searches = np.concatenate(
        [rows_of(findings_of(name).study.searches, list(own.values())).ravel() for name, own in cells.items()]
    )
    scale = scale_of(metric)
    half_width = scale * critical(parts) * math.sqrt(sum(variance for variance, _ in parts))
    return Average(scale * mean, half_width, int((searches > 0).sum()), searches.size, regimes)


def over_studies(cells: Mapping[str, Mapping[str, Cell]], metric: str = "top5") -> Average | None:
    """Return the mean over studies, each the mean of its regimes, with Student's interval; None of too few.

    So it has in it what differs between studies: sizes of networks, numbers of images, draws.
    """
    if len(cells) < LEAST_STUDIES:
        return None
    means = np.array([scale_of(metric) * estimate_of(n, own, metric).mean for n, own in cells.items()])
    half_width = stats.t.ppf(0.975, len(means) - 1) * stats.sem(means)
    ahead, regimes = int((means > 0).sum()), sum(map(len, cells.values()))
    return Average(float(means.mean()), float(half_width), ahead, len(means), regimes)


def estimate_of(name: str, cells: Mapping[str, Cell], metric: str) -> Estimate:
    """Return the mean of a study's cells, by ``regime/model``, with its variance over searches and test images."""
    searches, weight = findings_of(name).study.searches, 1 / len(cells)
    rows = rows_of(searches, list(cells.values())).mean(0)
    least = sum(weight**2 * _usual(name, column, metric) for column in cells)
    known = [
        cell.difference.precision for cell in cells.values() if cell.difference and cell.difference.precision
    ]
    precision = Precision(
        by_seeds=max(float(rows.var(ddof=1)), least) / searches,
        by_images=sum(weight * math.sqrt(of_cell.by_images) for of_cell in known) ** 2,
        rows=searches,
        images=min(of_cell.images for of_cell in known),
        groups=min(of_cell.parts()[1][1] for of_cell in known),
    )
    return Estimate(float(rows.mean()), math.nan, searches, precision=precision)


def _usual(name: str, column: str, metric: str) -> float:
    """Return the median variance of a search's difference to the baseline in a ``regime/model``."""
    study, table = findings_of(name).study, findings_of(name).table
    keys = [
        row_and_column(study, table.across, arm) for arm in study.arms if arm.name.startswith(f"{column}/")
    ]
    cells = [table.cells[*key, metric] for key in keys if (*key, metric) in table.cells]
    return usual_variance(means_of_searches(cell.differences, study.searches) for cell in cells)


def rows_of(searches: int, cells: Sequence[Cell]) -> np.ndarray:
    """Return the mean differences of a study's searches, ``(cells, searches)``."""
    return np.array([means_of_searches(cell.differences, searches) for cell in cells])


def filled(text: str) -> str:
    """Return a page with all its tables made anew."""

    def table(match: re.Match[str]) -> str:
        makers: dict[str, Callable[..., Iterable[str]]] = {
            "cells": _cells,
            "averages": _averages,
            "claims": _claims,
        }
        lines = "\n".join(makers[match[2]](*match[3].split()))
        return f"{match[1]}\n{lines}\n\n{match[5]}"

    return _DIRECTIVE.sub(table, text)


def _rows(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if not number:
            yield f"|{' --- |' * len(row)}"


def _number(estimate: Estimate, metric: str, signed: bool = False) -> str:
    scale = scale_of(metric)
    return f"{scale * estimate.mean:{'+' if signed else ''}.1f} ± {scale * estimate.half_width:.1f}"


def _cells(name: str, metric: str, regimes: str = "*") -> Iterator[str]:
    table = findings_of(name).table
    columns = [column for column in table.columns if fnmatch(column, regimes)]

    def text(row: str, column: str) -> str:
        cell = table.cells.get((row, column, metric))
        if cell is None or cell.value is None:
            return ""
        if cell.difference is None:
            return _number(cell.value, metric)
        return _number(cell.difference, metric, signed=True) + _MARKS.get((cell.mark, cell.primary), "")

    rows = [[row, *(text(row, column) for column in columns)] for row in table.rows]
    return _rows([["loss", *columns], *(row for row in rows if any(row[1:]))])


def _averages(loss: str, metric: str) -> Iterator[str]:
    rows = [["data", "right labels", "4 of 10 redrawn", "8 of 10 redrawn"]]
    for kind, new in [(kind, new) for kind in KINDS for new in (False, True)]:
        name = KINDS[kind] + (", asked again" if new else "")
        chosen = [selected(kind, loss, metric, noise, new) for noise in (0.0, 0.4, 0.8)]
        rows.append([name, *(_average(averages(cells, metric)) if cells else "" for cells in chosen)])
        of_studies = [over_studies(cells, metric) for cells in chosen]
        rows.append([f"{name}, a row each study", *(_average(a) if a else "" for a in of_studies)])
    return _rows(row for row in rows if any(row[1:]))


def _average(average: Average) -> str:
    return f"{average.mean:+.1f} ± {average.half_width:.1f} ({average.ahead} of {average.rows})"


def _claims(name: str) -> Iterator[str]:
    rows = [["claim", "measured, in points", "verdict"]]
    for decision in findings_of(name).decisions():
        known = [(part.contrast.metric, part.estimate) for part in decision.evidence if part.estimate]
        numbers = [_number(estimate, metric, signed=True) for metric, estimate in known]
        tested = all(estimate.precision for _, estimate in known)
        verdict = decision.verdict if tested else "not tested: the file has no variances"
        if len(known) > _LISTED:
            means = [scale_of(metric) * estimate.mean for metric, estimate in known]
            numbers = [f"{min(means):+.1f} to {max(means):+.1f} in {len(known)} differences"]
        rows.append([decision.claim.text, "; ".join(numbers), verdict])
    return _rows(rows)


def main() -> None:
    """Write all pages of results anew, or check them."""
    stale = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text()
        if (result := filled(text)) != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(result)
    sys.stdout.write(f"{'stale' if '--check' in sys.argv else 'written'}: {', '.join(stale) or 'none'}\n")
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
