"""The names of the metrics of a split, with their meanings, units and directions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from topk_platform.references import is_reference

__all__ = [
    "GROUPS",
    "Measure",
    "accuracy_k",
    "accuracy_names",
    "candidate_names",
    "coverage_names",
    "digits_of",
    "less_is_better",
    "measure_of",
    "measures_among",
    "number_text",
    "scale_of",
    "unit_of",
]

GROUPS = ("many", "medium", "few")
"""Groups of classes by their number of training samples, as in ``many_top5``, a macro accuracy over a group."""

_UNITS = {
    "size": "classes",
    "candidates": "classes",
    "nll": "nats",
}  # the units of metrics that are not shares of samples
_LESS = (*_UNITS, "brier", "ece")  # metrics whose smaller values are better
_ACCURACY = re.compile(rf"(?:(?:macro|{'|'.join(GROUPS)})_)?top([1-9]\d*)")
_MEASURE = re.compile(r"(autkc|average)([1-9]\d*)|(size)(90|95|99)|(brier|ece|nll)")


class Measure(NamedTuple):
    """A metric other than an accuracy, as its name describes it.

    Args:
        kind: ``"autkc"``, the mean of top-1 to top-K accuracy; ``"average"``, the accuracy of sets that hold K classes
            on average; ``"size"``, the mean size of sets that hold the true class of a percentage of samples;
            ``"brier"``, the Brier score; ``"ece"``, the expected calibration error; ``"nll"``, the negative
            log-likelihood.
        number: K, or the percentage; 0 if the measure has neither.
    """

    kind: Literal["autkc", "average", "size", "brier", "ece", "nll"]
    number: int

    @property
    def is_of_sets(self) -> bool:
        """Whether it measures sets of classes, whose threshold is computed from other samples."""
        return self.kind in ("average", "size")


def measure_of(metric: str) -> Measure | None:
    """Return the measure that a metric's name describes; None for an accuracy or an unknown name.

    Example:
        >>> measure_of("average5"), measure_of("nll"), measure_of("top5"), measure_of("size80")
        (Measure(kind='average', number=5), Measure(kind='nll', number=0), None, None)
    """
    match = _MEASURE.fullmatch(metric)
    if match is None:
        return None
    kind, number = (*filter(None, match.groups()), "0")[:2]
    return Measure(kind, int(number))


def measures_among(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the measures among some metrics, each once: ours in an order of their own, then those of the user's own.

    Example:
        >>> measures_among(["top5", "size95", "my_lab:cost", "autkc10", "autkc5", "size95"])
        ('autkc5', 'autkc10', 'size95', 'my_lab:cost')
    """
    metrics = tuple(metrics)
    names = {measure: metric for metric in metrics if (measure := measure_of(metric)) is not None}
    return (*(names[measure] for measure in sorted(names)), *dict.fromkeys(filter(is_reference, metrics)))


def accuracy_names(topk: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the accuracies for every k: plain, macro, and macro over each group of classes.

    Example:
        >>> accuracy_names((1, 5))[:4]
        ('top1', 'top5', 'macro_top1', 'macro_top5')
    """
    kinds = ("", "macro_", *(f"{group}_" for group in GROUPS))
    return tuple(f"{kind}top{k}" for kind in kinds for k in topk)


def accuracy_k(metric: str) -> int | None:
    """Return the k of an accuracy, plain or macro; None for another metric.

    Example:
        >>> accuracy_k("macro_top5"), accuracy_k("autkc5")
        (5, None)
    """
    match = _ACCURACY.fullmatch(metric)
    return int(match[1]) if match else None


def coverage_names(measures: Iterable[str]) -> tuple[str, ...]:
    """Return the coverages recorded beside the sizes of sets: the share of samples whose set holds the true class.

    Example:
        >>> coverage_names(["autkc5", "size95"])
        ('coverage95', 'macro_coverage95')
    """
    numbers = [m.number for name in measures if (m := measure_of(name)) is not None and m.kind == "size"]
    return tuple(f"{kind}coverage{number}" for number in numbers for kind in ("", "macro_"))


def candidate_names(targets: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the metrics "least K that reaches this top-K accuracy".

    Example:
        >>> candidate_names((0.95, 0.99))
        ('candidates95', 'candidates99')
    """
    return tuple(f"candidates{100 * target:g}" for target in targets)


def less_is_better(metric: str) -> bool:
    """Return whether a smaller value of a metric is better, as for sizes of sets and for errors.

    Example:
        >>> less_is_better("size95"), less_is_better("ece"), less_is_better("average5")
        (True, True, False)
    """
    return metric.startswith(_LESS) and not is_reference(metric)


def _own_unit(metric: str) -> str:
    """Return the unit of a metric that is not a share of samples; empty for a share."""
    if is_reference(metric):
        return "units"
    return next((unit for kind, unit in _UNITS.items() if metric.startswith(kind)), "")


def scale_of(metric: str) -> float:
    """Return the factor by which a metric is shown: 100 for shares, in percent; 1 for all others."""
    return 1.0 if _own_unit(metric) else 100.0


def unit_of(metric: str, *, difference: bool = False) -> str:
    """Return the unit in which a metric, or a difference of two, is shown.

    Example:
        >>> unit_of("top5"), unit_of("top5", difference=True), unit_of("size95", difference=True), unit_of("nll")
        ('%', 'points', 'classes', 'nats')
    """
    return _own_unit(metric) or ("points" if difference else "%")


def digits_of(metric: str) -> int:
    """Return how many decimals a table shows for a metric.

    Example:
        >>> digits_of("top5"), digits_of("size95"), digits_of("nll")
        (1, 2, 3)
    """
    return {"": 1, "classes": 2}.get(_own_unit(metric), 3)


def number_text(metric: str, value: float) -> str:
    """Return a metric's value with one more decimal than in a table; shares are in percent.

    Example:
        >>> number_text("top5", 0.93456), number_text("size95", 3.14159), number_text("nll", 0.5)
        ('93.46%', '3.14', '0.500')
    """
    return f"{value:.{digits_of(metric)}f}" if _own_unit(metric) else f"{value:.2%}"
