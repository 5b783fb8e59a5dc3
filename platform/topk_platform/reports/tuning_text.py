"""The tuning of a study as Markdown, as CSV and on the terminal."""

from __future__ import annotations

from rich.console import Group

from topk_platform.reports.plain_text import rows_to_csv
from topk_platform.reports.sections import Section, to_markdown, to_rich
from topk_platform.reports.words import rounded
from topk_platform.results.tuning import ArmTuning, Fixed, Tuning

__all__ = ["tuning_to_csv", "tuning_to_markdown", "tuning_to_rich", "tuning_to_rows"]

_NOTES = (
    "Validation results, in percent; the test set is not used.",
    "Enough: the number of trials after which the best so far was within {within:g} points of the best of all. The "
    "column of the search shows what happened in this search. The column of random draws shows the expectation, with a "
    "95 % band for the expected best of all draws; the band is valid for independent draws, not for values that a "
    "sampler chose because of earlier results.",
    "Importance is a parameter's share by PED-ANOVA. ρ is Spearman's correlation of value and result. The last column "
    "has the best result in each third of the parameter's range.",
)

_COLUMNS = ("arm", "metric", "trials", "best", "expected_of_random", "low", "high")

_Rows = list[tuple[str, ...]]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _arm_row(arm: ArmTuning, within: float) -> tuple[str, ...]:
    search, random = arm.enough(within), arm.curve
    drawn = "–" if random is None else f"{random.enough(within)} of {arm.drawn}"
    band = (
        "–"
        if random is None
        else f"{_percent(random.expected[-1])} [{_percent(random.low[-1])}, {_percent(random.high[-1])}]"
    )
    best = _percent(arm.trace[-1] if arm.trace else None)
    return arm.arm, arm.metric, best, "–" if search is None else f"{search} of {len(arm.trace)}", drawn, band


_ARMS = ("arm", "metric", "best", "enough, this search", "enough, random draws", "expected best of the draws")
_PARAMETERS = ("arm", "parameter", "importance", "ρ", "best by value")
_EDGES = ("arm", "search", "parameter", "chosen", "searched", "try next")
_FIXED = ("regime/model", "loss", "parameter", "value", "metric", "mean ± sd", "n")


def _parameters(arm: ArmTuning) -> _Rows:
    return [
        (
            arm.arm,
            result.name,
            "–" if result.importance is None else f"{result.importance:.2f}",
            "–" if result.correlation is None else f"{result.correlation:+.2f}",
            ", ".join(f"{key} {_percent(best)}" for key, best in result.best.items()),
        )
        for result in arm.sensitivities
    ]


def _edges(arm: ArmTuning) -> _Rows:
    return [
        (arm.arm, f"{search + 1}", edge.parameter, rounded(edge.value), edge.searched, edge.proposed)
        for search, edge in arm.edges
    ]


def _fixed_row(fixed: Fixed) -> tuple[str, ...]:
    spread = "" if fixed.n == 1 else f" ± {100 * fixed.spread:.1f}"
    mean = f"{_percent(fixed.mean)}{spread}"
    return (
        fixed.column,
        fixed.loss,
        fixed.parameter,
        rounded(fixed.value),
        fixed.metric,
        mean,
        str(fixed.n),
    )


def _sections(tuning: Tuning, within: float) -> list[Section]:
    parts = [
        Section("Trials", _ARMS, [_arm_row(arm, within) for arm in tuning.arms]),
        Section("Searched parameters", _PARAMETERS, [row for arm in tuning.arms for row in _parameters(arm)]),
        Section(
            "Chosen within 5 % of an end of the range",
            _EDGES,
            [row for arm in tuning.arms for row in _edges(arm)],
        ),
        Section("Fixed parameters in which arms differ", _FIXED, [_fixed_row(row) for row in tuning.fixed]),
    ]
    return [part for part in parts if part.rows]


def _notes(tuning: Tuning, within: float) -> tuple[str, ...]:
    return tuple(note.format(within=100 * within) for note in (_NOTES if tuning.arms else _NOTES[:1]))


def tuning_to_markdown(tuning: Tuning, within: float = 0.005) -> str:
    """Return the tuning of a study as Markdown.

    Args:
        tuning: The result of :func:`topk_platform.results.tuning.tuning`.
        within: The distance to the best result that is close enough, as a fraction of 1.
    """
    return to_markdown(f"Tuning of {tuning.study}", _notes(tuning, within), _sections(tuning, within))


def tuning_to_rich(tuning: Tuning, within: float = 0.005) -> Group:
    """Return the tuning of a study for a terminal; the arguments are those of :func:`tuning_to_markdown`."""
    return to_rich(_notes(tuning, within), _sections(tuning, within))


def tuning_to_csv(tuning: Tuning) -> str:
    """Return the rows of :func:`tuning_to_rows` as CSV."""
    return rows_to_csv(_COLUMNS, tuning_to_rows(tuning))


def tuning_to_rows(tuning: Tuning) -> list[dict[str, object]]:
    """Return the tuning curves, with a row for each arm and number of trials; results are fractions of 1."""
    return [
        dict(zip(_COLUMNS, (arm.arm, arm.metric, n + 1, *_curves_at(arm, n)), strict=True))
        for arm in tuning.arms
        for n in range(max(len(arm.trace), arm.drawn))
    ]


def _curves_at(arm: ArmTuning, n: int) -> tuple[float | None, ...]:
    best = arm.trace[n] if n < len(arm.trace) else None
    curve = arm.curve if n < arm.drawn else None
    return (best, *((None,) * 3 if curve is None else (curve.expected[n], curve.low[n], curve.high[n])))
