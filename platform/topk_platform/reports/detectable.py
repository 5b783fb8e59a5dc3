"""The sentence about how large a true difference has a fair chance to be seen by the tests of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from topk_platform.specs.metric_names import digits_of, scale_of, unit_of

__all__ = ["chance_to_see"]


def chance_to_see(metric: str, sizes: Sequence[float], chance: str, cells: str, *, each: str = "") -> str:
    """Return the words for the differences that tests would see, without a full stop.

    Two shares differ by at most 100 points, and two Brier scores by at most 2. Where only a larger difference would be
    seen, the words say that none would.

    Args:
        metric: The metric.
        sizes: The minimal detectable effects of the tests, at least one.
        chance: The verb with the chance, such as ``"has a chance of 80 % to be marked"``.
        cells: What the tests are called, such as ``"the 4 cells"``.
        each: The words that follow if one size holds for all of several tests.

    Example:
        >>> print(chance_to_see("top5", [0.02, 0.01, 0.02, 0.04], "would be seen", "the 4 cells"))
        A true difference of 2.0 points would be seen in more than half of the 4 cells, one of 4.0 points in all
        >>> print(chance_to_see("top5", [0.01, 0.02, 1.2], "would be seen", "them"))
        A true difference of 2.0 points would be seen in more than half of them, but none, however large, in all
        >>> print(chance_to_see("top5", [0.02, 1.2], "would be seen", "them"))
        No true difference, however large, would be seen in more than half of them
    """
    ordered = sorted(sizes)
    middle = ordered[len(sizes) // 2]  # the third of four
    least, most = ordered[0], ordered[-1]
    if not _possible(metric, middle):
        where = f" in {'more than half' if _possible(metric, least) else 'any'} of {cells}"
        return f"No true difference, however large, {chance}{where if len(sizes) > 1 else ''}"
    half, all_of_them = _size(metric, middle), _size(metric, most)
    if half == all_of_them:
        where = each if len(sizes) > 1 else ""
    elif _possible(metric, most):
        where = f" in more than half of {cells}, one of {all_of_them} in all"
    else:
        where = f" in more than half of {cells}, but none, however large, in all"
    return f"A true difference of {half} {chance}{where}"


def _possible(metric: str, size: float) -> bool:
    most = 2 if metric == "brier" else 1 if unit_of(metric) == "%" else math.inf
    return size <= most


def _size(metric: str, size: float) -> str:
    return f"{scale_of(metric) * size:.{digits_of(metric)}f} {unit_of(metric, difference=True)}"
