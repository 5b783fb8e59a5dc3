"""The losses' names as a paper prints them, in place of the identifiers that studies use."""

from __future__ import annotations

import re
from collections.abc import Mapping

from topk_platform.results.table import Table, row_and_column

__all__ = ["TITLES", "row_titles", "with_titles"]

TITLES: Mapping[str, str] = {
    "active_passive_loss": "Active-passive loss",
    "asymmetric_loss": "Asymmetric loss",
    "autkc": "AUTKC",
    "balanced_softmax": "Balanced softmax",
    "calibrated_topk_hinge": "Calibrated top-K hinge",
    "convex_topk_hinge": "Convex top-K hinge",
    "cross_entropy": "Cross-entropy",
    "focal": "Focal loss",
    "generalized_cross_entropy": "Generalised cross-entropy",
    "label_smoothing": "Label smoothing",
    "lapsum_topk_loss": "LapSum top-K loss",
    "ldam": "LDAM",
    "logit_adjusted": "Logit adjustment",
    "logit_clip": "LogitClip",
    "mean_absolute_error": "Mean absolute error",
    "noised_imbalanced_topk_hinge": "Noised imbalanced top-K hinge",
    "noised_topk_hinge": "Noised top-K hinge",
    "smooth_topk_hinge": "Smooth top-K hinge",
    "smooth_topk_svm": "Smooth top-K SVM",
    "soft_topk_loss": "Soft top-K loss",
    "sorting_topk_cross_entropy": "Top-K cross-entropy by sorting",
    "symmetric_cross_entropy": "Symmetric cross-entropy",
    "topk_entropy": "Top-K entropy",
    "topk_grouping": "Top-K grouping",
    "topk_hinge": "Top-K hinge",
    "topk_transition": "Top-K transition",
    "truncated_topk_entropy": "Truncated top-K entropy",
    "vector_scaling": "Vector scaling",
}
"""The title of each loss that studies know by name, as its page in the documentation has it."""


def row_titles(table: Table) -> dict[str, str]:
    """Return the title of each row whose loss has one: ``"mlp/focal"`` is ``"mlp/Focal loss"``.

    A loss that the study labels otherwise keeps its label, which says what is particular about it.

    Args:
        table: The table.
    """
    result: dict[str, str] = {}
    for arm in table.study.arms:
        if (title := _titled(arm.loss.name, arm.loss.label)) is not None:
            row, _ = row_and_column(table.study, table.across, arm)
            result[row] = row.removesuffix(arm.loss.label) + title
    return result


def with_titles(table: Table, text: str) -> str:
    """Return a text with titles in place of the losses' identifiers.

    Args:
        table: Its study says which labels are identifiers.
        text: Such as the table's caption.
    """
    known = {arm.loss.label for arm in table.study.arms if _titled(arm.loss.name, arm.loss.label) is not None}
    if not known:
        return text
    # Not within a longer name, such as that of a regime or of another label.
    names = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, known)))})(?![\w-])")
    return names.sub(lambda result: TITLES[result[0]], text)


def _titled(name: str, label: str) -> str | None:
    return TITLES.get(name) if name == label else None
