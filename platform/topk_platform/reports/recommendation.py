"""A recommendation as Markdown, as JSON, and on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from topk_platform.reports.formats import words
from topk_platform.reports.recommending import NEAR, Compared, Recommendation, Situation
from topk_platform.specs import Parameter, Schedule

__all__ = ["recommendation_data", "recommendation_to_markdown", "recommendation_to_rich", "sentences"]

_SHOWN = 12
_HEADER = ("evidence", "what it is", "times apart", "ahead, points", "")
_VERDICTS = {"better": "better", "worse": "worse", "": "undecided"}


def sentences(found: Recommendation) -> list[str]:
    """Return what a recommendation says: the loss, its values, how sure, and what is not known.

    Args:
        found: The recommendation.
    """
    if found.nearest is None:
        return ["Not known: there is no study in which a loss and its baseline both have results."]
    if not found.near:
        return [_far(found, found.nearest)]
    told = {"better": _better, "baseline": _baseline, "unknown": _unknown}[found.verdict](found)
    return [*told, _elsewhere(found)]


def _far(found: Recommendation, nearest: Compared) -> str:
    ratios = found.asked.ratios(nearest.situation)
    most = sorted(ratios, key=lambda name: -ratios[name])[:2]
    why = " and ".join(f"{ratios[name]:.3g} times in {name}" for name in most if ratios[name] > 1)
    return (
        f"Not known: nothing near was measured. The nearest regime, {nearest.study}: {nearest.regime}, is "
        f"{nearest.apart:.3g} times apart ({why}); only evidence up to {NEAR:g} times apart counts."
    )


def _better(found: Recommendation) -> list[str]:
    first = found.chosen[0]
    marks = [one.cell.mark for one in found.chosen]
    undecided = f", undecided in {marks.count('')}" if "" in marks else ""
    others = {one.loss for one in found.near if one.cell.mark == "better"} - {found.loss}
    lines = [
        f"Start with {found.loss}.",
        *_settings(first),
        f"How sure: in the nearest regime where it was compared it is {_apart(first)}. Of {len(marks)} near "
        f"comparisons of it, it is better in {marks.count('better')}{undecided}, and worse in none.",
    ]
    if others:
        lines.append(
            f"Also better than their baseline in a near regime: {', '.join(sorted(others))}; they were not tested "
            f"against {found.loss}."
        )
    return lines


def _apart(one: Compared) -> str:
    """Return how far a comparison is ahead, with its p-value and where that was measured."""
    e, where = one.ahead, "ahead of"
    if e.mean < 0:
        e, where = replace(e, mean=-e.mean, low=-e.high, high=-e.low), "behind"
    return (
        f"{words.number(e, metric=one.metric)} points of {words.title_of(one.metric)} {where} {one.baseline} "
        f"({one.place}; n = {e.n} seeds, {_p(one)}; the interval covers {e.covers})"
    )


def _p(one: Compared) -> str:
    if one.cell.p_holm is None:
        return "not tested"
    return f"{words.probability(one.cell.p_holm)} after Holm's correction for all near comparisons"


def _settings(one: Compared) -> list[str]:
    told = [
        ", ".join(f"{name} = {_plain(value)}" for name, value in values.items())
        for values in one.values
        if values
    ]
    if not told:
        return []
    several = f" (the first of {len(told)} searches' choices)" if len(told) > 1 else ""
    return [
        f"Its values there, with model {one.model}: {told[0]}{several}. They belong to its recipe: start your own "
        "search from them."
    ]


def _plain(value: Parameter) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _baseline(found: Recommendation) -> list[str]:
    losses = list(dict.fromkeys(one.loss for one in found.near))
    return [
        f"Start with {found.loss}.",
        f"How sure: every loss that was compared with it is worse in the nearest regime where it was: "
        f"{', '.join(losses)}. Nothing is known about other losses. In the nearest regime {found.near[0].loss} is "
        f"{_apart(found.near[0])}.",
    ]


def _unknown(found: Recommendation) -> list[str]:
    marks = [one.cell.mark for one in found.near]
    counts = {"better": marks.count("better"), "worse": marks.count("worse"), "undecided": marks.count("")}
    told = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    known = [one for one in found.near if not one.cell.mark and not math.isnan(one.ahead.high)]
    lines = [
        f"Not known: of {len(marks)} near comparisons, {told}; no loss is better in its nearest regime "
        "without being worse in another near one."
    ]
    if known:
        most = max(known, key=lambda one: one.ahead.high)
        lines.append(
            f"That does not show that they are equal: 95 % intervals reach up to {100 * most.ahead.high:+.1f} points "
            f"({most.place})."
        )
    return lines


def _elsewhere(found: Recommendation) -> str:
    ratios = found.asked.ratios(found.near[0].situation)
    differing = [f"{ratio:.3g} times in {name}" for name, ratio in ratios.items() if ratio > 1.05]
    told = f"; the nearest regime differs {', '.join(differing)}" if differing else ""
    return f"All this was measured on data other than yours{told}."


def _rows(found: Recommendation) -> list[tuple[str, ...]]:
    return [
        (
            one.place,
            _said(one.situation),
            f"{one.apart:.3g}",
            f"{words.number(one.ahead, signed=True, metric=one.metric)} (n = {one.ahead.n})",
            _VERDICTS[one.cell.mark],
        )
        for one in found.near[:_SHOWN]
    ]


def _said(what: Situation) -> str:
    return (
        f"{what.classes} classes, {what.per_class:.3g} images each, imbalance {what.imbalance:.3g}, noise "
        f"{what.noise:.3g}, K = {what.k}"
    )


def _notes(found: Recommendation) -> list[str]:
    more = len(found.near) - _SHOWN
    notes = [f"{more} more near comparisons are in --json."] if more > 0 else []
    return notes + [f"Left out: {what}: {why}." for what, why in (found.left_out or {}).items()]


def recommendation_to_markdown(found: Recommendation) -> str:
    """Return a recommendation as Markdown."""
    parts = [f"# {_said(found.asked)}", "\n".join(f"- {line}" for line in sentences(found))]
    if rows := _rows(found):
        lines = [_HEADER, ("---",) * len(_HEADER), *rows]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join([*parts, *_notes(found)]) + "\n"


def recommendation_to_rich(found: Recommendation) -> Group:
    """Return a recommendation for a terminal."""
    parts: list[Text | RichTable] = [Text(_said(found.asked), style="dim")]
    parts += [Text(line, style="bold" if not i else "") for i, line in enumerate(sentences(found))]
    if rows := _rows(found):
        shown = RichTable(*_HEADER, title="near evidence, the nearest first", title_justify="left")
        for row in rows:
            shown.add_row(*row)
        parts.append(shown)
    return Group(*parts, *(Text(note, style="dim") for note in _notes(found)))


def recommendation_data(found: Recommendation) -> dict[str, object]:
    """Return a recommendation as JSON knows it; differences as fractions of 1."""
    return {
        "asked": vars(found.asked),
        "verdict": found.verdict,
        "loss": found.loss or None,
        "said": sentences(found),
        "near": [_compared(one) for one in found.near],
        "nearest": _compared(found.nearest) if found.nearest is not None else None,
        "left_out": dict(found.left_out or {}),
    }


def _compared(one: Compared) -> Mapping[str, object]:
    e = one.ahead
    return {
        "study": one.study,
        "regime": one.regime,
        "model": one.model,
        "loss": one.loss,
        "baseline": one.baseline,
        "metric": one.metric,
        "situation": vars(one.situation),
        "times_apart": one.apart,
        "verdict": _VERDICTS[one.cell.mark],
        "difference": e.mean,
        "low": None if math.isnan(e.low) else e.low,
        "high": None if math.isnan(e.high) else e.high,
        "n": e.n,
        "covers": e.covers,
        "p_holm": one.cell.p_holm,
        "values": [
            {name: str(v) if isinstance(v, Schedule) else v for name, v in values.items()}
            for values in one.values
        ],
    }
