"""Decided claims, and results by class: as tables for people, as rows, and as a Parquet file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any, get_args

from rich.console import Group

from topk_platform.errors import UserError
from topk_platform.reports.table_data import arrow_table, parquet
from topk_platform.reports.text_tables import TextTable, rows_to_csv, tables_as
from topk_platform.reports.words import command
from topk_platform.results.by_class import ClassResult
from topk_platform.results.decisions import Decision, Evidence, Verdict
from topk_platform.results.table import Table
from topk_platform.specs import Contrast, scale_of, unit_of

__all__ = [
    "CLASSES",
    "EXPLAINED",
    "FORMATS",
    "claim_tables",
    "claims_as",
    "claims_line",
    "claims_to_rows",
    "class_tables",
    "classes_as",
    "classes_to_files",
    "classes_to_rows",
    "contrast_text",
]

FORMATS = ("rich", "md", "csv")
"""The formats of decided claims and of results by class."""

_OF_CLAIM = ("contrast", "claimed", "measured", "n", "planned", "power", "to plan", "verdict")


def contrast_text(contrast: Contrast) -> str:
    """Return a contrast in words, followed by the regimes of a mean, or else what all its arms' names share.

    Example:
        >>> contrast_text(Contrast.between("noisy/mlp/smooth_topk_svm", "noisy/mlp/cross_entropy", "top5"))
        'top5: smooth_topk_svm - cross_entropy, noisy/mlp'
        >>> contrast_text(Contrast({"a/mlp/lapsum": 0.5, "b/mlp/lapsum": 0.5}, "top5"))
        'top5: mlp/lapsum, mean of a, b'
    """
    arms = {tuple(name.split("/")): weight for name, weight in contrast.weights.items()}
    regimes = dict.fromkeys(regime for regime, *_ in arms)
    of_each = [{key[1:]: weight for key, weight in arms.items() if key[0] == regime} for regime in regimes]
    if len(regimes) > 1 and all(terms == of_each[0] for terms in of_each):
        mean = {key: weight * len(regimes) for key, weight in of_each[0].items()}
        return f"{contrast.metric}: {_weighted(mean)}, mean of {', '.join(regimes)}"
    return f"{contrast.metric}: {_weighted(arms)}"


def _weighted(terms: Mapping[tuple[str, ...], float]) -> str:
    """Return a sum of arms, each named by its parts; parts that all of them share stand behind it."""
    parts = range(len(next(iter(terms))))
    shared = [part for part in parts if len({key[part] for key in terms}) == 1 and len(terms) > 1]
    texts = []
    for key, weight in terms.items():
        factor = f"{abs(weight):g}·".removeprefix("1·")
        own = "/".join(name for part, name in enumerate(key) if part not in shared)
        texts.append(f"{'-' if weight < 0 else '+'} {factor}{own}")
    behind = "/".join(next(iter(terms))[part] for part in shared)
    return " ".join(texts).removeprefix("+ ") + (f", {behind}" if behind else "")


def _claimed(decision: Decision) -> str:
    claim = decision.claim
    if claim.direction == "within":
        return f"within ± {claim.tolerance:g}"
    sign = -1 if claim.direction == "below" else 1
    return f"{claim.direction} {claim.bound + sign * claim.tolerance:g}"


def _to_plan(evidence: Evidence) -> str:
    """Return how many seeds a study would have to plan, of how many searches; empty if it has planned that many."""
    estimate = evidence.estimate
    if evidence.verdict != "undecided" or evidence.why or estimate is None:
        return ""
    if evidence.seeds is None:
        return "more images"
    if evidence.seeds <= evidence.planned:
        return ""
    if estimate.precision is None or not estimate.covers.startswith("searches"):
        return f"{evidence.seeds} seeds"
    searches = math.ceil(evidence.seeds * estimate.precision.rows / estimate.n)
    return f"{evidence.seeds} seeds of {searches} searches"


def claims_line(decisions: Sequence[Decision]) -> str:
    """Return the line about all claims: how many have each verdict, and what the columns mean."""
    counts = Counter(decision.verdict for decision in decisions)
    parts = ", ".join(f"{counts[name]} {name}" for name in get_args(Verdict) if counts[name])
    metrics = {e.contrast.metric for decision in decisions for e in decision.evidence}
    classes = (
        ", numbers of classes as they are" if any(unit_of(metric) == "classes" for metric in metrics) else ""
    )
    stand_ins = (
        " Stand-ins do not decide the paper's claim." if any(d.claim.stand_in for d in decisions) else ""
    )
    return (
        f"{parts}. Differences are in points{classes}, with half their 95 % interval. The planned seeds decide, once. "
        "power: the chance to confirm the paper's number, or twice the tolerance; to plan: what a power of 80 % needs. "
        f"A claim is confirmed by all its contrasts, and refuted by one.{stand_ins}"
    )


def claim_tables(decisions: Sequence[Decision]) -> list[TextTable]:
    """Return a table for each decided claim, with its evidence."""
    return list(map(_table, decisions))


def _table(decision: Decision) -> TextTable:
    claim, rows = decision.claim, [_row(decision, evidence) for evidence in decision.evidence]
    why = dict.fromkeys(f"Not tested: {e.why}." for e in decision.evidence if e.why)
    note = " ".join([f"{claim.text} ({claim.source}{', stand-in' if claim.stand_in else ''})", *why])
    kept = [i for i in range(len(_OF_CLAIM)) if any(row[i] for row in rows)]
    return TextTable(
        f"{claim.name}: {decision.verdict}",
        [_OF_CLAIM[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        note,
        numbers=_OF_CLAIM[2:6],
    )


def _row(decision: Decision, evidence: Evidence) -> tuple[str, ...]:
    measured, n, planned, estimate = "", "", "", evidence.estimate
    if estimate is not None:
        scale = scale_of(evidence.contrast.metric)
        half = "" if math.isnan(estimate.half_width) else f" ± {scale * estimate.half_width:.2f}"
        measured, n = f"{scale * estimate.mean:+.2f}{half}", str(estimate.n)
        planned = str(evidence.planned) if evidence.planned not in (0, estimate.n) else ""
    return (
        *(contrast_text(evidence.contrast), _claimed(decision), measured),
        *(n, planned),
        "" if evidence.power is None else f"{evidence.power:.2f} for {evidence.effect:.3g}",
        *(_to_plan(evidence), evidence.verdict),
    )


def claims_as(output: str, name: str, decisions: Sequence[Decision]) -> str | Group:
    """Return a study's decided claims as ``"rich"``, ``"md"`` or ``"csv"``: text, or an object that rich prints."""
    if output == "csv":
        rows = claims_to_rows(decisions)
        return rows_to_csv(list(rows[0]), rows)
    return tables_as(output, f"Claims of {name}", claims_line(decisions), claim_tables(decisions))


def claims_to_rows(decisions: Sequence[Decision]) -> list[dict[str, object]]:
    """Return a row for each contrast of decided claims; shares are in percent, and their differences in points."""
    return [_values(decision, evidence) for decision in decisions for evidence in decision.evidence]


def _values(decision: Decision, evidence: Evidence) -> dict[str, object]:
    claim, estimate, scale = decision.claim, evidence.estimate, scale_of(evidence.contrast.metric)
    return {
        "claim": claim.name,
        "verdict": decision.verdict,
        "text": claim.text,
        "source": claim.source,
        "stand_in": claim.stand_in,
        "contrast": contrast_text(evidence.contrast),
        "direction": claim.direction,
        "bound": claim.bound,
        "tolerance": claim.tolerance,
        "measured": None if estimate is None else scale * estimate.mean,
        "low": None if estimate is None else scale * estimate.low,
        "high": None if estimate is None else scale * estimate.high,
        "n": estimate and estimate.n,
        "covers": estimate and estimate.covers,
        "contrast_verdict": evidence.verdict,
        "effect": evidence.effect,
        "power": evidence.power,
        "seeds": evidence.seeds,
        "why": evidence.why,
        "planned": evidence.planned,
    }


CLASSES = "classes.parquet"
"""The name of the file with the results by class, in a study's ``tables`` folder."""

EXPLAINED = (
    "Top-1 and top-K accuracy over the test images of each class, as means over seeds; the hardest classes first. Most "
    "often taken for: the other class that is most often the first guess, with its share of the images."
)
"""What the columns mean."""

_OF_CLASS = ("class", "loss", "images", "top-1, %", "top-K, %", "most often taken for")
_ON_TERMINAL = 30


def class_tables(table: Table, results: Iterable[ClassResult], most: int = 0) -> list[TextTable]:
    """Return results by class as tables of texts, one for each column of the study's table.

    Args:
        table: The table.
        results: Its results.
        most: The most rows of a table, 0 for no limit. A class is shown with all its rows or left out; at least one
            class is shown.
    """
    columns: dict[str, dict[int, list[ClassResult]]] = {}
    for result in results:
        columns.setdefault(result.column, {}).setdefault(result.label, []).append(result)
    return [_of_column(table, column, list(classes.values()), most) for column, classes in columns.items()]


def _of_column(table: Table, column: str, classes: Sequence[Sequence[ClassResult]], most: int) -> TextTable:
    hardest = sorted(classes, key=lambda losses: sum(result.topk for result in losses) / len(losses))
    shown = hardest[: max(most // max(map(len, classes)), 1)] if most else hardest
    hidden = len(classes) - len(shown)
    whole = command("table", table.study, "--by", "class", "--format", "csv", given=table.given)
    note = f"Easier classes that are left out: {hidden:,}; `{whole}` has all." if hidden else ""
    rows = [_texts(result) for losses in shown for result in losses]
    return TextTable(column, _OF_CLASS, rows, note, numbers=_OF_CLASS[2:5])


def _texts(result: ClassResult) -> tuple[str, ...]:
    other = f"{result.confused_name} ({100 * result.confused_share:.1f} %)" if result.confused_name else "–"
    accuracies = (f"{100 * result.top1:.1f}", f"{100 * result.topk:.1f}")
    return result.name, result.row, f"{result.images}", *accuracies, other


def classes_to_rows(table: Table, results: Iterable[ClassResult]) -> list[dict[str, Any]]:
    """Return results by class as rows, each a dictionary; shares are fractions of 1.

    Args:
        table: The table; the column ``regime`` is called ``model`` if the table's columns are models.
        results: The results.
    """
    return [dict(zip(_columns(table), astuple(result), strict=True)) for result in results]


def _columns(table: Table) -> Sequence[str]:
    numbers = ("class", "name", "images", "seeds", "k", "top1", "topk")
    return ("loss", table.across, *numbers, "confused_with", "confused_name", "confused_share")


def classes_to_files(table: Table, results: Iterable[ClassResult]) -> dict[str, bytes]:
    """Return the file ``classes.parquet`` of a study's ``tables`` folder by its name; without ranks it has no rows.

    Args:
        table: The table.
        results: The results.
    """
    return {CLASSES: parquet(arrow_table(_columns(table), classes_to_rows(table, results)))}


def classes_as(output: str, table: Table, results: Iterable[ClassResult]) -> str | Group:
    """Return results by class in a format, as text or as an object that rich prints.

    Args:
        output: One of ``FORMATS``.
        table: The table.
        results: The results.

    Raises:
        UserError: if there are no results.
    """
    if not (listed := list(results)):
        raise UserError(
            "there are no results by class: no confirmed run has kept the ranks of its test images"
        )
    if output == "csv":
        return rows_to_csv(_columns(table), classes_to_rows(table, listed))
    tables = class_tables(table, listed, _ON_TERMINAL if output == "rich" else 0)
    return tables_as(output, f"{table.study.name}: results by class", EXPLAINED, tables)
