"""Decided claims as Markdown, as CSV and on the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from rich.console import Group

from topk_platform.reports import sections
from topk_platform.reports.plain_text import rows_to_csv
from topk_platform.results.decisions import Decision, Evidence, Verdict
from topk_platform.specs import Contrast, scale_of, unit_of

__all__ = ["claims_to_csv", "claims_to_markdown", "claims_to_rich", "claims_to_rows"]

_COLUMNS = (
    *("claim", "verdict", "text", "source", "stand_in", "contrast", "direction", "bound", "tolerance"),
    *("measured", "low", "high", "n", "covers", "contrast_verdict", "effect", "power", "seeds", "why"),
    "planned",
)


def contrast_text(contrast: Contrast) -> str:
    """Return a contrast in words, followed by the parts of the name that all its arms share.

    Example:
        >>> contrast_text(Contrast.between("noisy/mlp/smooth_topk_svm", "noisy/mlp/cross_entropy", "top5"))
        'top5: smooth_topk_svm - cross_entropy, noisy/mlp'
    """
    pieces = [name.split("/") for name in contrast.weights]
    shared = [part for part in range(3) if len({piece[part] for piece in pieces}) == 1]
    shared = shared if len(pieces) > 1 else []
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
    matters = f" ({claim.tolerance:g} matters)" if claim.tolerance and claim.bound else ""
    return f"{claim.direction} {claim.bound + sign * claim.tolerance:g}{matters}"


def _measured(evidence: Evidence) -> str:
    if evidence.estimate is None:
        return ""
    scale = scale_of(evidence.contrast.metric)
    half = evidence.estimate.half_width
    spread = f" ± {scale * half:.2f}" if half == half else ""  # noqa: PLR0124 - NaN does not equal itself
    planned = (
        f" of {evidence.planned}" if evidence.planned and evidence.planned != evidence.estimate.n else ""
    )
    return f"{scale * evidence.estimate.mean:+.2f}{spread} (n = {evidence.estimate.n}{planned})"


def _settled(evidence: Evidence) -> str:
    if evidence.why or evidence.estimate is None:
        return evidence.why
    parts = [] if evidence.power is None else [f"power {evidence.power:.2f} for {evidence.effect:.3g}"]
    if evidence.verdict == "undecided":
        parts.append(_plan(evidence))
    return "; ".join(filter(None, parts))


def _plan(evidence: Evidence) -> str:
    """Return how many seeds a study would have to plan, of how many searches; empty if it has planned that many."""
    if evidence.seeds is None:
        return "more test images, not seeds"
    if evidence.seeds <= evidence.planned:
        return ""
    estimate = evidence.estimate
    if estimate is None or estimate.precision is None or not estimate.covers.startswith("searches"):
        return f"to plan: {evidence.seeds} seeds"
    searches = math.ceil(evidence.seeds * estimate.precision.rows / estimate.n)
    return f"to plan: {evidence.seeds} seeds of {searches} searches"


def _summary(decisions: Sequence[Decision]) -> str:
    counts = Counter(decision.verdict for decision in decisions)
    parts = ", ".join(f"{counts[name]} {name}" for name in get_args(Verdict) if counts[name])
    metrics = {e.contrast.metric for decision in decisions for e in decision.evidence}
    classes = ", numbers of classes as they are," if any(unit_of(m) == "classes" for m in metrics) else ""
    text = (
        f"{parts}. Differences in points{classes} with their 95 % intervals. A claim is confirmed if all of its "
        "contrasts are, and refuted if one is. The planned seeds decide, once. Power, and the seeds to plan for a "
        "power of 80 %, are for the paper's number or for twice the tolerance, by the measured variance."
    )
    if any(decision.claim.stand_in for decision in decisions):
        text += " Stand-ins: these results hold for this study's data, and do not decide the paper's claim."
    return text


def _title(decision: Decision) -> str:
    claim = decision.claim
    return f"{claim.text} ({claim.source}{', stand-in' if claim.stand_in else ''})"


def claims_to_markdown(name: str, decisions: Sequence[Decision]) -> str:
    """Return a study's decided claims as Markdown: a summary, and each claim's verdict with a table of its evidence."""
    return sections.to_markdown(f"Claims of {name}", [_summary(decisions)], map(_section, decisions))


def claims_to_rich(decisions: Sequence[Decision]) -> Group:
    """Return decided claims for a terminal."""
    return sections.to_rich([_summary(decisions)], map(_section, decisions))


def _section(decision: Decision) -> sections.Section:
    rows = [
        (contrast_text(e.contrast), _claimed(decision), _measured(e), e.verdict, _settled(e))
        for e in decision.evidence
    ]
    title = f"{decision.claim.name}: {decision.verdict}"
    return sections.Section(title, ("contrast", "claimed", "measured", "verdict", ""), rows, _title(decision))


def claims_to_csv(decisions: Sequence[Decision]) -> str:
    """Return the rows of :func:`claims_to_rows` as CSV."""
    return rows_to_csv(_COLUMNS, claims_to_rows(decisions))


def claims_to_rows(decisions: Sequence[Decision]) -> list[dict[str, object]]:
    """Return a row for each contrast of decided claims; shares are in percent, and their differences in points."""
    return [
        dict(zip(_COLUMNS, _values(decision, e), strict=True))
        for decision in decisions
        for e in decision.evidence
    ]


def _values(decision: Decision, e: Evidence) -> tuple[object, ...]:
    claim = decision.claim
    head = (claim.name, decision.verdict, claim.text, claim.source, claim.stand_in)
    asked = (contrast_text(e.contrast), claim.direction, claim.bound, claim.tolerance)
    return (*head, *asked, *_numbers(e), e.verdict, e.effect, e.power, e.seeds, e.why, e.planned)


def _numbers(evidence: Evidence) -> tuple[float | int | str | None, ...]:
    if evidence.estimate is None:
        return (None,) * 5
    scale, e = scale_of(evidence.contrast.metric), evidence.estimate
    return scale * e.mean, scale * e.low, scale * e.high, e.n, e.covers
