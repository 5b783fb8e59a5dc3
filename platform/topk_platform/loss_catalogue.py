"""The catalogue of losses: the title, search ranges and drawn values of each loss that studies know by name.

``LOSSES`` in ``training/loss_table.py`` builds the losses and needs torch. This module needs only the specs, so
commands that only read results start fast. Tests check that both have the same names, that the first values here are
the defaults of ``LOSSES``, and that the pages in ``docs/losses`` have these titles and ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topk_platform.specs import Choice, Dimension, Float, Scalar

__all__ = ["LOSS_CATALOGUE", "LossEntry"]


@dataclass(frozen=True)
class LossEntry:
    """The facts that the platform has about a loss, besides how to build it.

    Args:
        title: Its name in tables and plots of a paper, and the heading of its page.
        searched: The loss's own parameters that are worth searching, each with its range and its first value, the
            paper's.
        drawn: The settings that its page draws, each as the loss's fixed parameters; empty if a picture shows nothing.
        of_batches: Whether it has one value for a batch and none for a sample; networks cannot train as an ensemble
            with such a loss.
    """

    title: str
    searched: Mapping[str, tuple[Dimension, Scalar]] = field(default_factory=dict)
    drawn: tuple[Mapping[str, Scalar], ...] = ()
    of_batches: bool = False


def _each(parameter: str, *values: Scalar, **others: Scalar) -> tuple[Mapping[str, Scalar], ...]:
    """Return settings that differ in one parameter."""
    return tuple({parameter: value, **others} for value in values)


def _log(low: float, high: float, first: float) -> tuple[Dimension, Scalar]:
    """Return a range that is searched by orders of magnitude, and its first value."""
    return Float(low, high, log=True), first


LOSS_CATALOGUE: Mapping[str, LossEntry] = {
    "active_passive_loss": LossEntry(
        "Active-passive loss",
        searched={
            "alpha": _log(0.1, 100.0, first=1.0),
            "beta": _log(0.01, 10.0, first=1.0),
            "passive": (Choice(("rce", "nnce")), "rce"),
        },
        drawn=_each("passive", "mae", "nnce"),
    ),
    "asymmetric_loss": LossEntry(
        "Asymmetric loss",
        searched={"a": _log(0.1, 10.0, first=0.6), "q": _log(0.1, 5.0, first=0.6)},
        drawn=_each("form", "agce", "aul", "ael", a=2.0, q=2.0),
    ),
    "autkc": LossEntry("AUTKC", drawn=_each("surrogate", "squared", "logistic", "hinge")),
    "balanced_softmax": LossEntry("Balanced softmax"),
    "calibrated_topk_hinge": LossEntry(
        "Calibrated top-K hinge",
        searched={"margin": _log(0.03, 30.0, first=1.0)},
        drawn=_each("margin", 0.5, 1.0),
    ),
    "conformal_training": LossEntry(
        "Conformal training",
        searched={"temperature": _log(0.1, 10.0, first=1.0), "size_weight": _log(0.001, 10.0, first=0.01)},
        of_batches=True,
    ),
    "convex_topk_hinge": LossEntry("Convex top-K hinge", drawn=_each("margin", 0.5, 1.0)),
    "cross_entropy": LossEntry(
        "Cross-entropy",
        searched={"temperature": _log(0.03, 30.0, first=1.0)},
        drawn=_each("temperature", 0.1, 1.0),
    ),
    "early_learning": LossEntry(
        "Early-learning regularisation",
        searched={"strength": _log(0.3, 30.0, first=3.0), "beta": (Float(0.1, 0.99), 0.7)},
    ),
    "focal": LossEntry(
        "Focal loss",
        searched={"gamma": _log(0.1, 5.0, first=2.0)},
        drawn=_each("gamma", 0.5, 2.0, 5.0),
    ),
    "generalized_cross_entropy": LossEntry(
        "Generalised cross-entropy",
        searched={"gamma": _log(0.01, 1.0, first=0.7)},
        drawn=_each("gamma", 0.1, 0.7, 1.0),
    ),
    "label_smoothing": LossEntry(
        "Label smoothing",
        searched={"epsilon": _log(0.01, 0.9, first=0.1)},
        drawn=_each("epsilon", 0.1, 0.5),
    ),
    "ldam": LossEntry(
        "LDAM",
        searched={"max_margin": _log(0.01, 1.0, first=0.5), "scale": _log(1.0, 100.0, first=30.0)},
        drawn=_each("scale", 1.0, 10.0, max_margin=0.5),
    ),
    "logit_adjusted": LossEntry("Logit adjustment"),
    "logit_clip": LossEntry(
        "LogitClip",
        searched={"limit": _log(0.5, 50.0, first=1.5)},
        drawn=_each("limit", 0.5, 1.5, 5.0),
    ),
    "noised_imbalanced_topk_hinge": LossEntry(
        "Noised imbalanced top-K hinge",
        searched={"epsilon": _log(0.001, 1.0, first=0.01), "max_margin": _log(0.01, 1.0, first=0.2)},
        drawn=_each("epsilon", 0.1, 0.5, 1.0),
    ),
    "noised_topk_hinge": LossEntry(
        "Noised top-K hinge",
        searched={"epsilon": _log(0.003, 10.0, first=0.2), "samples": (Choice((None, 1, 3, 5, 10, 30)), 10)},
        drawn=_each("epsilon", 0.1, 0.5, 1.0),
    ),
    "smooth_topk_hinge": LossEntry("Smooth top-K hinge", drawn=_each("gamma", 0.1, 1.0, 10.0)),
    "smooth_topk_svm": LossEntry(
        "Smooth top-K SVM",
        searched={"tau": _log(0.003, 100.0, first=1.0)},
        drawn=_each("tau", 0.01, 0.1, 1.0),
    ),
    "soft_topk_loss": LossEntry(
        "Soft top-K loss",
        searched={"tau": _log(0.003, 100.0, first=1.0)},
        drawn=_each("shape", "logistic", "gaussian", "clip", tau=0.5, form="error"),
    ),
    "sorting_topk_cross_entropy": LossEntry(
        "Top-K cross-entropy by sorting", drawn=_each("steepness", 1.0, 2.0, 10.0)
    ),
    "symmetric_cross_entropy": LossEntry(
        "Symmetric cross-entropy",
        searched={"alpha": _log(0.01, 10.0, first=0.1), "beta": _log(0.01, 10.0, first=1.0)},
        drawn=_each("alpha", 0.1, 1.0, 10.0),
    ),
    "topk_entropy": LossEntry("Top-K entropy", drawn=({},)),
    "topk_grouping": LossEntry("Top-K grouping", drawn=({},)),
    "topk_hinge": LossEntry("Top-K hinge", drawn=_each("margin", 0.5, 1.0)),
    "topk_transition": LossEntry("Top-K transition", drawn=({},)),
    "truncated_topk_entropy": LossEntry("Truncated top-K entropy", drawn=({},)),
    "vector_scaling": LossEntry(
        "Vector scaling",
        searched={"tau": (Float(0.0, 2.0), 1.0), "gamma": (Float(0.0, 0.5), 0.3)},
    ),
}
"""Every loss that studies know by name, by that name."""
