"""The level sets on the losses' pages, drawn by the project's own plot when the site is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from topk_platform import Loss
from topk_platform.reports.plots.levels import level_sets

__all__ = ["PICTURES", "setup"]


def _over(name: str, parameter: str, *values: float | str, **others: float | str) -> list[Loss]:
    return [Loss(name, fixed={parameter: value, **others}) for value in values]


PICTURES: dict[str, list[Loss]] = {
    "active_passive_loss": _over("active_passive_loss", "passive", "mae", "nnce"),
    "asymmetric_loss": _over("asymmetric_loss", "form", "agce", "aul", "ael", a=2.0, q=2.0),
    "autkc": _over("autkc", "surrogate", "squared", "logistic", "hinge"),
    "calibrated_topk_hinge": _over("calibrated_topk_hinge", "margin", 0.5, 1.0),
    "convex_topk_hinge": _over("convex_topk_hinge", "margin", 0.5, 1.0),
    "cross_entropy": _over("cross_entropy", "temperature", 0.1, 1.0),
    "focal": _over("focal", "gamma", 0.5, 2.0, 5.0),
    "generalized_cross_entropy": _over("generalized_cross_entropy", "gamma", 0.1, 0.7, 1.0),
    "label_smoothing": _over("label_smoothing", "epsilon", 0.1, 0.5),
    "lapsum_topk_loss": _over("lapsum_topk_loss", "temperature", 0.1, 1.0, 10.0),
    "ldam": _over("ldam", "scale", 1.0, 10.0, max_margin=0.5),
    "logit_clip": _over("logit_clip", "limit", 0.5, 1.5, 5.0),
    "mean_absolute_error": [Loss("mean_absolute_error")],
    "noised_imbalanced_topk_hinge": _over("noised_imbalanced_topk_hinge", "epsilon", 0.1, 0.5, 1.0),
    "noised_topk_hinge": _over("noised_topk_hinge", "epsilon", 0.1, 0.5, 1.0),
    "smooth_topk_hinge": _over("smooth_topk_hinge", "gamma", 0.1, 1.0, 10.0),
    "smooth_topk_svm": _over("smooth_topk_svm", "tau", 0.01, 0.1, 1.0),
    "soft_topk_loss": _over("soft_topk_loss", "shape", "logistic", "gaussian", "clip", tau=0.5, form="error"),
    "sorting_topk_cross_entropy": _over("sorting_topk_cross_entropy", "steepness", 1.0, 2.0, 10.0),
    "symmetric_cross_entropy": _over("symmetric_cross_entropy", "alpha", 0.1, 1.0, 10.0),
    "topk_entropy": [Loss("topk_entropy")],
    "topk_grouping": [Loss("topk_grouping")],
    "topk_hinge": _over("topk_hinge", "margin", 0.5, 1.0),
    "topk_transition": [Loss("topk_transition")],
    "truncated_topk_entropy": [Loss("truncated_topk_entropy")],
}
"""What is drawn on the page of each loss. With classes of one size, balanced softmax and its
relatives are cross-entropy and have none."""


def _draw(app: Sphinx) -> None:
    """Draw them all, K = 2, into the folder of the losses' pages."""
    folder = Path(app.srcdir) / "losses" / "_pictures"
    folder.mkdir(exist_ok=True)
    for name, losses in PICTURES.items():
        level_sets(losses).savefig(folder / f"{name}.svg")


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw before the pages are read."""
    app.connect("builder-inited", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
