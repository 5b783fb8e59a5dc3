"""A report's section on tuning: how many trials were enough, which parameters mattered, and what was chosen."""

from __future__ import annotations

from topk_platform.reports.plain_text import markdown_table
from topk_platform.reports.tables.markdown import configurations
from topk_platform.reports.words import rounded
from topk_platform.results.from_store import Held
from topk_platform.results.tuning import tuning_of

__all__ = ["tuning"]

_WITHIN = 0.005
_NOTE = (
    "Validation results, in percent; the test set is not used. Enough: the number of trials after which the best so "
    f"far was within {100 * _WITHIN:g} points of the best of all. Importance: a parameter's share, among all, in "
    "explaining which trials are the best tenth (PED-ANOVA)."
)
_EDGES = "Chosen within 5 % of an end of the range that was searched, so that better values may lie beyond:"


def tuning(held: Held) -> str:
    """Return how a study's arms were tuned as Markdown; empty if nothing was searched.

    Args:
        held: The study's results, with the epochs of its trials.
    """
    arms, table = tuning_of(held.results.values()), held.table
    if not arms:
        return ""
    rows = []
    for arm in arms:
        enough = arm.enough(_WITHIN)
        best = "–" if enough is None else f"{100 * arm.trace[-1]:.1f}"
        shares = ", ".join(f"{name} {share:.2f}" for name, share in arm.importances.items())
        tried = "–" if enough is None else f"{enough} of {len(arm.trace)}"
        rows.append((arm.arm, arm.metric, best, tried, shares or "–"))
    parts = [_NOTE, markdown_table(("arm", "metric", "best", "enough", "importance"), rows)]
    parts += [configurations(table)] if table.choices else []
    if edges := table.edges:
        texts = [(arm, e.parameter, rounded(e.value), e.searched, e.proposed) for arm, e in edges]
        parts += [_EDGES, markdown_table(("arm", "parameter", "chosen", "searched", "try next"), texts)]
    return "\n\n".join(parts)
