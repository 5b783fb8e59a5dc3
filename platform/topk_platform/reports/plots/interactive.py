"""One HTML file with Optuna's plots of a study's searches; a reader can enlarge them and see the trials' values."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna

from topk_platform.errors import UserError
from topk_platform.records import ArmHistory
from topk_platform.reports.plots.plot_data import NothingToPlotError, UnsuitedStudyError, completed_trials
from topk_platform.results.from_store import read
from topk_platform.results.importances import optuna_study
from topk_platform.specs import Study, scale_of, unit_of

__all__ = ["interactive_search"]

_LEAST = 2  # completed trials that an arm needs to be drawn
_RANKED = 10  # completed trials that importances need
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem; }}</style>
</head>
<body>
<h1>{title}</h1>
<p>Each line is a search trial, from its validation result over its values. Point at a line to read them, and drag over
a part of a plot to enlarge it.</p>
"""


def interactive_search(
    study: Study,
    *,
    store: str | Path = "runs",
    trials: int | None = None,
    only: str | Sequence[str] | None = None,
) -> str:
    """Return an HTML page with Optuna's plots of each arm's search trials.

    Each arm with at least two completed trials has a plot of parallel coordinates. If it has several parameters and at
    least ten completed trials with different results, it also has a plot of the parameters' importance by PED-ANOVA.
    Trials without a result are left out. The page is about 5 MB and needs no network.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm, instead of the study's.
        only: A glob over the names of the arms, ``regime/model/loss``, or several.

    Raises:
        UserError: if plotly is not installed, the store has no results of the study, or no arm can be drawn.
    """
    if find_spec("plotly") is None:
        raise UserError("--interactive needs plotly: pip install 'topk-studies[interactive]'")
    held = read(study, store, trials, needed=True, curves=True)
    shown = held.study.only(only) if only else held.study
    searched = [arm for arm in shown.arms if arm.is_searched]
    if not searched:
        raise UnsuitedStudyError("none of the arms is searched")
    drawn = {arm.name: _figures(held.histories[held.study.arm_id(arm)], held.study) for arm in searched}
    drawn = {name: figures for name, figures in drawn.items() if figures}
    if not drawn:
        raise NothingToPlotError("no arm has two completed search trials")
    title = html.escape(f"{study.name}: search trials")
    return _HEAD.format(title=title) + "\n".join(_parts(drawn)) + "\n</body>\n</html>\n"


def _parts(drawn: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield each arm's heading and figures; the first figure contains plotly's script."""
    number = 0
    for name, figures in drawn.items():
        yield f"<h2>{html.escape(name)}</h2>"
        for figure in figures:
            figure.update_layout(title_font_size=14, margin={"t": 60, "b": 40})
            yield figure.to_html(full_html=False, include_plotlyjs=not number, div_id=f"plot-{number}")
            number += 1


def _figures(history: ArmHistory, study: Study) -> list[Any]:
    """Return an arm's figures; an empty list if it has fewer than two completed trials."""
    arm = history.arm
    made = optuna_study(arm.loss.space, completed_trials(history, study), scale_of(arm.objectives[0]))
    results = [trial.value for trial in made.trials]
    if len(results) < _LEAST:
        return []
    name = f"validation {arm.objectives[0]}, {unit_of(arm.objectives[0])}"
    figures: list[Any] = [optuna.visualization.plot_parallel_coordinate(made, target_name=name)]
    if len(arm.loss.space) > 1 and len(results) >= _RANKED and len(set(results)) > 1:
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        figures.append(optuna.visualization.plot_param_importances(made, evaluator, target_name=name))
    return figures
