"""A recommendation as Markdown, as JSON, and on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.console import Group
from rich.text import Text

from topk_platform.reports import words
from topk_platform.reports.plain_text import markdown_table
from topk_platform.reports.sections import Section, to_rich
from topk_platform.results.comparisons import Situation
from topk_platform.results.recommendation import LEAST_SEARCHES, NEAR, Recommendation
from topk_platform.results.replicates import Pooled
from topk_platform.specs import Schedule
from topk_platform.specs.checks import plural

__all__ = ["recommendation_data", "recommendation_to_markdown", "recommendation_to_rich", "sentences"]

_SHOWN = 12
_EQUAL = 1.005  # ratios up to this are 1 in a sentence
_HEADER = ("evidence", "what it is", "times apart", "ahead, points", "")
_SHORT = (
    "evidence",
    "times\napart",
    "ahead,\npoints",
    "",
)  # on terminals, where the second is below the first
_FACTS = ("study", "regime", "model", "kind", "pretrained", "loss", "baseline", "metric")
_VERDICTS = {"better": "better", "worse": "worse", "": "undecided"}


def sentences(recommendation: Recommendation) -> list[str]:
    """Return a recommendation in sentences: the loss, its values, how sure this is, and what is not known.

    Args:
        recommendation: The recommendation.
    """
    if recommendation.nearest is None:
        return ["Not known: there is no study in which a loss and its baseline both have results."]
    if not recommendation.near:
        return [_far(recommendation, recommendation.nearest)]
    parts = {"better": _better, "baseline": _baseline, "unknown": _unknown}[recommendation.verdict](
        recommendation
    )
    return [*parts, _elsewhere(recommendation)]


def _far(recommendation: Recommendation, nearest: Pooled) -> str:
    ratios = recommendation.asked.ratios(nearest.first.situation)
    most = sorted((name for name in ratios if ratios[name] > _EQUAL), key=lambda name: -ratios[name])
    why = " × ".join(f"{words.rounded(ratios[name])} in {name}" for name in most)
    return (
        f"Not known: nothing near was measured. The nearest regime, {nearest.first.study}: {nearest.first.regime} "
        f"({nearest.first.measured}), is "
        f"{words.rounded(nearest.apart)} times apart ({why}); only evidence up to {NEAR:g} times apart counts."
    )


def _better(recommendation: Recommendation) -> list[str]:
    first = recommendation.chosen[0]
    marks = [one.mark for one in recommendation.chosen]
    undecided = f", undecided in {marks.count('')}" if "" in marks else ""
    others = {one.loss for one in recommendation.near if one.mark == "better"} - {recommendation.loss}
    lines = [
        f"Start with {recommendation.loss} ({_measured(recommendation)}).",
        *_settings(first),
        f"How sure: in the nearest regime where it was compared it is {_apart(first)}. Of "
        f"{plural(len(marks), 'near comparison')} of it, it is better in {marks.count('better')}{undecided}, and worse "
        "in none.",
        *_another_k(recommendation.asked.k, first),
    ]
    if others:
        lines.append(
            f"Also better than their baseline in a near regime: {', '.join(sorted(others))}; they were not tested "
            f"against {recommendation.loss}."
        )
    return lines


def _another_k(asked: int, one: Pooled) -> list[str]:
    """Return the warning that a comparison is about another K than the one asked for; empty if it is not."""
    if one.first.situation.k == asked:
        return []
    return [
        f"This is for K = {one.first.situation.k}, and you asked for K = {asked}: a loss that is ahead at one K may be "
        f"behind at another. See {words.title_of(f'top{asked}')} in the tables of the evidence before you take it."
    ]


def _apart(one: Pooled) -> str:
    """Return how far a loss is ahead in a comparison, with its p-value and where this was measured."""
    e, where = (one.ahead, "ahead of") if one.ahead.mean >= 0 else (-one.ahead, "behind")
    return (
        f"{words.number(e, metric=one.first.metric)} points of {words.title_of(one.first.metric)} {where} "
        f"{one.first.baseline} ({one.name}; n = {e.n} seeds of {_searches(one)}, {_p(one)}; the interval covers "
        f"{e.covers})"
    )


def _searches(one: Pooled) -> str:
    return "1 search" if one.searches == 1 else f"{one.searches} searches"


def _measured(recommendation: Recommendation) -> str:
    """Return the kinds of data and the networks of the near evidence, in words."""
    near = [one.first for one in recommendation.near]
    kinds = words.listed(dict.fromkeys(one.kind for one in near))
    models = words.listed(dict.fromkeys(one.model for one in near))
    pretrained = {one.pretrained for one in near}
    weights = {1: "pretrained" if True in pretrained else "not pretrained", 2: "some of them pretrained"}
    return f"measured on {kinds} with {models}, {weights[len(pretrained)]}"


def _p(one: Pooled) -> str:
    if one.p_holm is None:
        return "not tested"
    return f"{words.probability(one.p_holm)} after Holm's correction for all near comparisons"


def _settings(one: Pooled) -> list[str]:
    parts = [
        ", ".join(f"{name} = {words.rounded(value)}" for name, value in values.items())
        for values in one.first.values
        if values
    ]
    if not parts:
        return []
    several = f" (of {len(parts)} searches' choices, the best on validation)" if len(parts) > 1 else ""
    return [
        f"Its values there, with model {one.first.model}: {parts[0]}{several}. They belong to its recipe: start your "
        "own search from them."
    ]


def _baseline(recommendation: Recommendation) -> list[str]:
    losses = list(dict.fromkeys(one.loss for one in recommendation.near))
    return [
        f"Start with {recommendation.loss} ({_measured(recommendation)}).",
        f"How sure: every loss that was compared with it is worse in the nearest regime where it was: "
        f"{', '.join(losses)}. Nothing is known about other losses. In the nearest regime "
        f"{recommendation.near[0].loss} is {_apart(recommendation.near[0])}.",
    ]


def _unknown(recommendation: Recommendation) -> list[str]:
    marks = [one.mark for one in recommendation.near]
    counts = {"better": marks.count("better"), "worse": marks.count("worse"), "undecided": marks.count("")}
    text = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    lines = [
        f"Not known ({_measured(recommendation)}): of {plural(len(marks), 'near comparison')}, {text}; no loss "
        f"{'that was searched more than once ' if recommendation.promising else ''}is better in its nearest regime "
        "without being worse in another near one.",
        *_bound(recommendation),
        *_promising(recommendation),
    ]
    if len(baselines := {one.first.baseline for one in recommendation.near}) == 1:
        lines.append(f"Until that is known, keep {baselines.pop()}, the baseline, and tune it.")
    untested = any(math.isnan(one.ahead.p) and one.first.searches == 1 for one in recommendation.near)
    if untested:
        lines.append(
            "Losses that were searched once decide nothing if no comparison was made twice, because it is not known "
            "how much another search would change."
        )
    if untested or recommendation.promising:
        lines.append("`topk run STUDY --searches 3` adds searches.")
    return lines


def _promising(recommendation: Recommendation) -> list[str]:
    """Return the sentences about losses that are ahead after one search, which is not enough to recommend them."""
    if not (names := recommendation.promising):
        return []
    first = next(one for one in recommendation.near if one.loss == names[0])
    others = f" The same holds for {', '.join(names[1:])}." if names[1:] else ""
    return [
        f"Worth searching again: {names[0]} is {_apart(first)}.{others} A loss is recommended after "
        f"{LEAST_SEARCHES} searches or more, because losses of a study with one search share the luck of their "
        "baseline's search."
    ]


def _bound(recommendation: Recommendation) -> list[str]:
    """Return how far ahead an undecided loss may be in the nearest regime; empty if none may be ahead."""
    nearest = [one for one in recommendation.near if one.apart == recommendation.near[0].apart]
    known = [one for one in nearest if not one.mark and one.ahead.high > 0]  # NaN is not
    if not known:
        return []
    most = max(known, key=lambda one: one.ahead.high)
    return [
        "That does not show that they are equal: in the nearest regime 95 % intervals reach up to "
        f"{100 * most.ahead.high:+.1f} points ({most.name}; {_searches(most)})."
    ]


def _elsewhere(recommendation: Recommendation) -> str:
    ratios = recommendation.asked.ratios(recommendation.near[0].first.situation)
    differing = [f"{words.rounded(ratio)} times in {name}" for name, ratio in ratios.items() if ratio > 1.05]
    text = f"; the nearest regime differs {', '.join(differing)}" if differing else ""
    return f"All this was measured on data other than yours{text}."


def _rows(recommendation: Recommendation) -> list[tuple[str, ...]]:
    return [
        (
            one.name,
            f"{_said(one.first.situation)}; {one.first.measured}",
            words.rounded(one.apart),
            f"{words.number(one.ahead, signed=True, metric=one.first.metric)} ({_searches(one)})",
            _VERDICTS[one.mark],
        )
        for one in recommendation.near[:_SHOWN]
    ]


def _said(what: Situation) -> str:
    each, imbalance, noise = map(words.rounded, (what.per_class, what.imbalance, what.noise))
    images = f"{each} image{'' if each == '1' else 's'} each"
    return f"{what.classes} classes, {images}, imbalance {imbalance}, noise {noise}, K = {what.k}"


def _notes(recommendation: Recommendation) -> list[str]:
    more = len(recommendation.near) - _SHOWN
    notes = [f"{more} more near comparisons are in --json."] if more > 0 else []
    notes += [
        f"A difference in top-{k} accuracy varies by {100 * luck.deviation:.2f} points (standard deviation, "
        f"{luck.freedom} degrees of freedom) from search to search."
        for k, luck in recommendation.luck.items()
        if k == recommendation.asked.k
    ]
    return notes + [f"Left out: {what}: {why}." for what, why in (recommendation.left_out or {}).items()]


def recommendation_to_markdown(recommendation: Recommendation) -> str:
    """Return a recommendation as Markdown."""
    parts = [f"# {_said(recommendation.asked)}", "\n".join(f"- {line}" for line in sentences(recommendation))]
    if rows := _rows(recommendation):
        parts.append(markdown_table(_HEADER, rows))
    return "\n\n".join([*parts, *_notes(recommendation)]) + "\n"


def recommendation_to_rich(recommendation: Recommendation) -> Group:
    """Return a recommendation for a terminal."""
    lines = [Text(_said(recommendation.asked), style="dim")]
    lines += [Text(line, style="bold" if not i else "") for i, line in enumerate(sentences(recommendation))]
    rows = [
        (f"{name}\n{what}", apart, ahead.replace(" (", "\n("), verdict)
        for name, what, apart, ahead, verdict in _rows(recommendation)
    ]
    near = Section("near evidence, the nearest first", _SHORT, rows)
    return Group(*lines, to_rich(_notes(recommendation), [near] if near.rows else []))


def recommendation_data(recommendation: Recommendation) -> dict[str, object]:
    """Return a recommendation as values that JSON can hold; differences are fractions of 1."""
    return {
        "asked": vars(recommendation.asked),
        "verdict": recommendation.verdict,
        "loss": recommendation.loss or None,
        "said": sentences(recommendation),
        "near": [_compared(one) for one in recommendation.near],
        "promising": list(recommendation.promising),
        "nearest": _compared(recommendation.nearest) if recommendation.nearest is not None else None,
        "left_out": dict(recommendation.left_out or {}),
    }


def _compared(one: Pooled) -> Mapping[str, object]:
    e, first = one.ahead, one.first
    return {
        **{name: getattr(first, name) for name in _FACTS},
        "studies": [part.study for part in one.parts],
        "situation": vars(first.situation),
        "times_apart": one.apart,
        "verdict": _VERDICTS[one.mark],
        "difference": e.mean,
        "low": None if math.isnan(e.low) else e.low,
        "high": None if math.isnan(e.high) else e.high,
        "n": e.n,
        "searches": one.searches,
        "covers": e.covers,
        "p_holm": one.p_holm,
        "values": [
            {name: str(v) if isinstance(v, Schedule) else v for name, v in values.items()}
            for values in first.values
        ],
    }
