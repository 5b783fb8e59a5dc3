"""The catalogue of losses: the title, look, search ranges and drawn values of each loss that studies know by name.

``LOSSES`` in ``training/loss_table.py`` builds the losses and needs torch. This module needs only the specs, so
commands that only read results start fast. Tests check that both have the same names, that the first values here are
the defaults of ``LOSSES``, and that the pages in ``docs/losses`` have these titles and ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topk_platform.specs import Choice, Dimension, Float, Scalar

__all__ = ["INK", "LOSS_CATALOGUE", "PALETTE", "LossEntry"]

INK = "#1b1b1b"
"""The colour of text and of the baseline; a page in dark mode replaces it."""

# The palette of Okabe and Ito, with a grey in place of its yellow, which is too pale for lines on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A7A7A")
"""The colours of losses; colour-blind readers can tell them apart."""
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY = PALETTE


@dataclass(frozen=True)
class LossEntry:
    """The facts that the platform has about a loss, besides how to build it.

    Args:
        title: Its name in tables and plots of a paper, and the heading of its page.
        colour: Its colour in plots, ``#rrggbb``.
        marker: Its marker in plots, one of matplotlib's.
        searched: The loss's own parameters that are worth searching, each with its range and its first value, the
            paper's.
        drawn: The settings that its page draws, each as the loss's fixed parameters; empty if a picture shows nothing.
        limits: The least and the largest value that the loss accepts, by parameter, if the searched range is smaller.
        of_batches: Whether it has one value for a batch and none for a sample; networks cannot train as an ensemble
            with such a loss.
    """

    title: str
    colour: str
    marker: str
    searched: Mapping[str, tuple[Dimension, Scalar]] = field(default_factory=dict)
    drawn: tuple[Mapping[str, Scalar], ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
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
        GREY,
        "v",
        searched={
            "alpha": _log(0.1, 100.0, first=1.0),
            "beta": _log(0.01, 10.0, first=1.0),
            "passive": (Choice(("rce", "nnce")), "rce"),
        },
        drawn=_each("passive", "mae", "nnce"),
    ),
    "asymmetric_loss": LossEntry(
        "Asymmetric loss",
        GREY,
        "P",
        searched={"a": _log(0.1, 10.0, first=0.6), "q": _log(0.1, 5.0, first=0.6)},
        drawn=_each("form", "agce", "aul", "ael", a=2.0, q=2.0),
    ),
    "autkc": LossEntry("AUTKC", ORANGE, "P", drawn=_each("surrogate", "squared", "logistic", "hinge")),
    "balanced_softmax": LossEntry("Balanced softmax", ORANGE, "^"),
    "calibrated_topk_hinge": LossEntry(
        "Calibrated top-K hinge",
        GREEN,
        "o",
        searched={"margin": _log(0.03, 30.0, first=1.0)},
        drawn=_each("margin", 0.5, 1.0),
    ),
    "conformal_training": LossEntry(
        "Conformal training",
        PURPLE,
        "D",
        searched={"temperature": _log(0.1, 10.0, first=1.0), "size_weight": _log(0.001, 10.0, first=0.01)},
        of_batches=True,
    ),
    "convex_topk_hinge": LossEntry("Convex top-K hinge", GREEN, "v", drawn=_each("margin", 0.5, 1.0)),
    "cross_entropy": LossEntry(
        "Cross-entropy",
        INK,
        "o",
        searched={"temperature": _log(0.03, 30.0, first=1.0)},
        drawn=_each("temperature", 0.1, 1.0),
    ),
    "early_learning": LossEntry(
        "Early-learning regularisation",
        SKY,
        "v",
        searched={"strength": _log(0.3, 30.0, first=3.0), "beta": (Float(0.1, 0.99), 0.7)},
        limits={"beta": (0.0, 1.0)},
    ),
    "focal": LossEntry(
        "Focal loss",
        ORANGE,
        "o",
        searched={"gamma": _log(0.1, 5.0, first=2.0)},
        drawn=_each("gamma", 0.5, 2.0, 5.0),
    ),
    "generalized_cross_entropy": LossEntry(
        "Generalised cross-entropy",
        ORANGE,
        "s",
        searched={"gamma": _log(0.01, 1.0, first=0.7)},
        drawn=_each("gamma", 0.1, 0.7, 1.0),
        limits={"gamma": (0.0, 1.0)},
    ),
    "label_smoothing": LossEntry(
        "Label smoothing",
        GREY,
        "s",
        searched={"epsilon": _log(0.01, 0.9, first=0.1)},
        drawn=_each("epsilon", 0.1, 0.5),
        limits={"epsilon": (0.0, 1.0)},
    ),
    "ldam": LossEntry(
        "LDAM",
        ORANGE,
        "D",
        searched={"max_margin": _log(0.01, 1.0, first=0.5), "scale": _log(1.0, 100.0, first=30.0)},
        drawn=_each("scale", 1.0, 10.0, max_margin=0.5),
    ),
    "logit_adjusted": LossEntry("Logit adjustment", ORANGE, "v"),
    "logit_clip": LossEntry(
        "LogitClip",
        SKY,
        "^",
        searched={"limit": _log(0.5, 50.0, first=1.5)},
        drawn=_each("limit", 0.5, 1.5, 5.0),
    ),
    "noised_imbalanced_topk_hinge": LossEntry(
        "Noised imbalanced top-K hinge",
        VERMILION,
        "^",
        searched={"epsilon": _log(0.001, 1.0, first=0.01), "max_margin": _log(0.01, 1.0, first=0.2)},
        drawn=_each("epsilon", 0.1, 0.5, 1.0),
    ),
    "noised_topk_hinge": LossEntry(
        "Noised top-K hinge",
        VERMILION,
        "D",
        searched={"epsilon": _log(0.003, 10.0, first=0.2), "samples": (Choice((None, 1, 3, 5, 10, 30)), 10)},
        drawn=_each("epsilon", 0.1, 0.5, 1.0),
    ),
    "smooth_topk_hinge": LossEntry("Smooth top-K hinge", SKY, "s", drawn=_each("gamma", 0.1, 1.0, 10.0)),
    "smooth_topk_svm": LossEntry(
        "Smooth top-K SVM",
        BLUE,
        "s",
        searched={"tau": _log(0.003, 100.0, first=1.0)},
        drawn=_each("tau", 0.01, 0.1, 1.0),
    ),
    "soft_topk_loss": LossEntry(
        "Soft top-K loss",
        SKY,
        "D",
        searched={"tau": _log(0.003, 100.0, first=1.0)},
        drawn=_each("shape", "logistic", "gaussian", "clip", tau=0.5, form="error"),
    ),
    "sorting_topk_cross_entropy": LossEntry(
        "Top-K cross-entropy by sorting", SKY, "P", drawn=_each("steepness", 1.0, 2.0, 10.0)
    ),
    "symmetric_cross_entropy": LossEntry(
        "Symmetric cross-entropy",
        GREY,
        "^",
        searched={"alpha": _log(0.01, 10.0, first=0.1), "beta": _log(0.01, 10.0, first=1.0)},
        drawn=_each("alpha", 0.1, 1.0, 10.0),
    ),
    "topk_entropy": LossEntry("Top-K entropy", GREY, "o", drawn=({},)),
    "topk_grouping": LossEntry("Top-K grouping", PURPLE, "P", drawn=({},)),
    "topk_hinge": LossEntry("Top-K hinge", GREEN, "s", drawn=_each("margin", 0.5, 1.0)),
    "topk_transition": LossEntry("Top-K transition", PURPLE, "X", drawn=({},)),
    "truncated_topk_entropy": LossEntry("Truncated top-K entropy", GREY, "X", drawn=({},)),
    "vector_scaling": LossEntry(
        "Vector scaling",
        ORANGE,
        "X",
        searched={"tau": (Float(0.0, 2.0), 1.0), "gamma": (Float(0.0, 0.5), 0.3)},
    ),
}
"""Every loss that studies know by name, by that name."""
