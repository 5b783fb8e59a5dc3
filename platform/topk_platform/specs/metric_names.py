"""The names of the metrics of a split, and how to read each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

__all__ = [
    "GROUPS",
    "Measure",
    "accuracy_k",
    "accuracy_names",
    "candidate_names",
    "coverage_names",
    "less_is_better",
    "measure_of",
    "measures_among",
    "number_text",
    "scale_of",
    "unit_of",
]

GROUPS = ("many", "medium", "few")
"""Groups of classes by their number of training samples; macro accuracies over a group are named ``many_top5`` and so
on."""

_COUNTED = ("size", "candidates")  # as a number of classes, of which fewer are better
_ACCURACY = re.compile(rf"(?:(?:macro|{'|'.join(GROUPS)})_)?top([1-9]\d*)")
_MEASURE = re.compile(r"(autkc|average)([1-9]\d*)|(size)(90|95|99)")


class Measure(NamedTuple):
    """A metric other than the accuracies, as its name asks for it.

    Args:
        kind: ``"autkc"``, the mean of top-1 to top-K accuracy; ``"average"``, the accuracy of sets that hold K classes
            on average; ``"size"``, the mean size of sets that hold the true class of so many percent of samples.
        number: K, or the percentage.
    """

    kind: Literal["autkc", "average", "size"]
    number: int


def measure_of(metric: str) -> Measure | None:
    """Return the measure that a metric's name asks for; None for an accuracy or an unknown name.

    Example:
        >>> measure_of("average5"), measure_of("size95"), measure_of("top5"), measure_of("size80")
        (Measure(kind='average', number=5), Measure(kind='size', number=95), None, None)
    """
    found = _MEASURE.fullmatch(metric)
    if found is None:
        return None
    kind, number = (part for part in found.groups() if part)
    return Measure(kind, int(number))  # type: ignore[arg-type] # the pattern has no other kinds


def measures_among(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the measures among some metrics, each once, in an order that does not depend on the metrics' order.

    Example:
        >>> measures_among(["top5", "size95", "autkc10", "autkc5", "size95"])
        ('autkc5', 'autkc10', 'size95')
    """
    found = {measure: metric for metric in metrics if (measure := measure_of(metric)) is not None}
    return tuple(found[measure] for measure in sorted(found))


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
    found = _ACCURACY.fullmatch(metric)
    return int(found[1]) if found else None


def coverage_names(measures: Iterable[str]) -> tuple[str, ...]:
    """Return the coverages recorded beside the sizes of sets: the share of samples whose set holds the true class.

    Example:
        >>> coverage_names(["autkc5", "size95"])
        ('coverage95', 'macro_coverage95')
    """
    wanted = [m.number for name in measures if (m := measure_of(name)) is not None and m.kind == "size"]
    return tuple(f"{kind}coverage{number}" for number in wanted for kind in ("", "macro_"))


def candidate_names(targets: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the metrics "least K that reaches this top-K accuracy".

    Example:
        >>> candidate_names((0.95, 0.99))
        ('candidates95', 'candidates99')
    """
    return tuple(f"candidates{100 * target:g}" for target in targets)


def less_is_better(metric: str) -> bool:
    """Return whether a smaller value of a metric is better: so for numbers of classes, not for shares of samples.

    Example:
        >>> less_is_better("size95"), less_is_better("average5")
        (True, False)
    """
    return metric.startswith(_COUNTED)


def scale_of(metric: str) -> float:
    """Return the factor by which a metric is shown: 100 for shares, in percent; 1 for numbers of classes."""
    return 1.0 if metric.startswith(_COUNTED) else 100.0


def unit_of(metric: str, *, difference: bool = False) -> str:
    """Return the unit in which a metric, or a difference of two, is shown.

    Example:
        >>> unit_of("top5"), unit_of("top5", difference=True), unit_of("size95", difference=True)
        ('%', 'points', 'classes')
    """
    return "classes" if metric.startswith(_COUNTED) else "points" if difference else "%"


def number_text(metric: str, value: float) -> str:
    """Return a metric's value with two digits: a share in percent.

    Example:
        >>> number_text("top5", 0.93456), number_text("size95", 3.14159)
        ('93.46%', '3.14')
    """
    return f"{value:.2f}" if metric.startswith(_COUNTED) else f"{value:.2%}"
