"""Studies and losses for people: a few lines of text, and tables in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from topk_platform.specs.checks import first_few
from topk_platform.specs.search.space import Choice, Dimension

if TYPE_CHECKING:
    from topk_platform.specs.arms.loss import Loss
    from topk_platform.specs.study.study import Study

__all__ = ["loss_to_html", "range_text", "study_to_html", "study_to_text"]

_LINED = 12  # at most so many names are in a line


def range_text(dimension: Dimension) -> str:
    """Return a dimension's range in a few words.

    Args:
        dimension: The dimension.

    Example:
        >>> from topk_platform.specs import Float
        >>> range_text(Float(0.01, 10, log=True)), range_text(Choice((None, 10)))
        ('0.01 to 10, log', 'None, 10')
    """
    if isinstance(dimension, Choice):
        return ", ".join(map(str, dimension.options))
    return f"{dimension.low:g} to {dimension.high:g}{', log' if dimension.log else ''}"


def study_to_text(study: Study) -> str:
    """Return a study's question, search and budget, one line each.

    Args:
        study: The study.
    """
    return "\n".join([f"{study.name}: {study.description}".removesuffix(": "), *_facts(study)])


def study_to_html(study: Study) -> str:
    """Return a study for a notebook: the lines of :func:`study_to_text`, and the search space of each loss.

    Args:
        study: The study.
    """
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in _facts(study))
    losses = {arm.loss.label: arm.loss for arm in study.arms}.values()
    spaces = [row for loss in losses for row in _rows(loss, loss.label)]
    shown = _table(("loss", "parameter", "values", "first"), spaces) if spaces else ""
    folded = f"<details><summary>What is searched</summary>{shown}</details>" if spaces else ""
    title = f"<b>{escape(study.name)}</b>{f': {escape(study.description)}' if study.description else ''}"
    return f"<div>{title}<ul>{facts}</ul>{folded}</div>"


def loss_to_html(loss: Loss) -> str:
    """Return a loss for a notebook: its search space and its fixed parameters.

    Args:
        loss: The loss.
    """
    named = "" if loss.label == loss.name else f" ({escape(loss.name)})"
    rows = [row[1:] for row in _rows(loss, "")]
    return (
        f"<b>{escape(loss.label)}</b>{named}{_table(('parameter', 'values', 'first'), rows) if rows else ''}"
    )


def _facts(study: Study) -> list[str]:
    arms = study.arms
    searched = sum(arm.is_searched for arm in arms)
    ks = sorted({arm.k for arm in arms})
    named = {
        "regimes": dict.fromkeys(arm.regime.name for arm in arms),
        "models": dict.fromkeys(arm.model.label for arm in arms),
        "losses": dict.fromkeys(arm.loss.label for arm in arms),
    }
    budget = f"{study.trials} search trials in each of {searched}, " if searched else ""
    return [
        *(f"{kind}: {first_few(list(names), _LINED)}" for kind, names in named.items()),
        f"{len(arms)} arms of a regime, a model and a loss: {budget}{study.seeds} seeds each, "
        f"{study.size} trainings at most",
        f"K = {', '.join(map(str, ks))}; shown are {', '.join(study.show)}; "
        f"baseline {study.baseline or 'none'}",
    ]


def _rows(loss: Loss, label: str) -> Iterable[tuple[str, ...]]:
    for name, dimension in loss.space.items():
        yield label, name, range_text(dimension), str(loss.first.get(name, ""))
    for name, value in loss.fixed.items():
        yield label, name, f"{value}, fixed", ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    return f"<table><thead>{line('th', header)}</thead>{''.join(line('td', row) for row in rows)}</table>"
