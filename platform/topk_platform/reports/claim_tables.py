"""Decided claims as tables for people, and as rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from rich.console import Group
from rich.text import Text

from topk_platform.reports.text_tables import TextTable, markdown_parts, rows_to_csv
from topk_platform.results.decisions import Decision, Evidence, Verdict
from topk_platform.specs import Contrast, scale_of, unit_of

__all__ = ["CLAIM_FORMATS", "claim_tables", "claims_as", "claims_line", "claims_to_rows"]

CLAIM_FORMATS = ("rich", "md", "csv")
"""The formats of decided claims."""

_COLUMNS = (
    *("claim", "verdict", "text", "source", "stand_in", "contrast", "direction", "bound", "tolerance"),
    *("measured", "low", "high", "n", "covers", "contrast_verdict", "effect", "power", "seeds", "why"),
    "planned",
)
_HEADER = ("contrast", "claimed", "measured", "n", "planned", "power", "to plan", "verdict")


def contrast_text(contrast: Contrast) -> str:
    """Return a contrast in words, followed by the parts of the name that all its arms share.

    Example:
        >>> contrast_text(Contrast.between("noisy/mlp/smooth_topk_svm", "noisy/mlp/cross_entropy", "top5"))
        'top5: smooth_topk_svm - cross_entropy, noisy/mlp'
    """
    pieces = [name.split("/") for name in contrast.weights]
    shared = [part for part in range(3) if len({piece[part] for piece in pieces}) == 1 and len(pieces) > 1]
    terms = []
    for weight, piece in zip(contrast.weights.values(), pieces, strict=True):
        own = "/".join(name for part, name in enumerate(piece) if part not in shared)
        factor = "" if abs(weight) == 1 else f"{abs(weight):g}·"
        terms.append(f"{'-' if weight < 0 else '+'} {factor}{own}")
    text = " ".join(terms).removeprefix("+ ")
    behind = "/".join(pieces[0][part] for part in shared)
    return f"{contrast.metric}: {text}{f', {behind}' if behind else ''}"


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
    return [_table(decision) for decision in decisions]


def _table(decision: Decision) -> TextTable:
    claim, rows = decision.claim, [_row(decision, evidence) for evidence in decision.evidence]
    why = dict.fromkeys(f"Not tested: {e.why}." for e in decision.evidence if e.why)
    note = " ".join([f"{claim.text} ({claim.source}{', stand-in' if claim.stand_in else ''})", *why])
    kept = [i for i in range(len(_HEADER)) if any(row[i] for row in rows)]
    return TextTable(
        f"{claim.name}: {decision.verdict}",
        [_HEADER[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        note,
        numbers=_HEADER[2:6],
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


def claims_as(output: str, name: str, decisions: Sequence[Decision]) -> object:
    """Return a study's decided claims as ``"rich"``, ``"md"`` or ``"csv"``: text, or an object that rich prints."""
    if output == "csv":
        return rows_to_csv(_COLUMNS, claims_to_rows(decisions))
    line, tables = claims_line(decisions), claim_tables(decisions)
    if output == "md":
        return "\n\n".join([f"# Claims of {name}", line, *markdown_parts(tables)]) + "\n"
    return Group(*tables, Text(line, "dim"))


def claims_to_rows(decisions: Sequence[Decision]) -> list[dict[str, object]]:
    """Return a row for each contrast of decided claims; shares are in percent, and their differences in points."""
    return [
        dict(zip(_COLUMNS, _values(decision, e), strict=True))
        for decision in decisions
        for e in decision.evidence
    ]


def _values(decision: Decision, e: Evidence) -> tuple[object, ...]:
    claim, scale = decision.claim, scale_of(e.contrast.metric)
    head = (claim.name, decision.verdict, claim.text, claim.source, claim.stand_in)
    asked = (contrast_text(e.contrast), claim.direction, claim.bound, claim.tolerance)
    numbers: tuple[object, ...] = (None,) * 5
    if e.estimate is not None:
        numbers = (
            *(scale * end for end in (e.estimate.mean, e.estimate.low, e.estimate.high)),
            e.estimate.n,
            e.estimate.covers,
        )
    return (*head, *asked, *numbers, e.verdict, e.effect, e.power, e.seeds, e.why, e.planned)
