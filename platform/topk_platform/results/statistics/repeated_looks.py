"""The level of a test that is made again and again while seeds are added."""

from __future__ import annotations

import math

from scipy import special

__all__ = ["level_at_plan", "level_now"]

_BY_PLAN = 0.8  # the share of the error up to the planned number of seeds
_LATER = 0.2  # the error of each doubling beyond the plan, as a share of the error before it


def level_now(level: float, seeds: int, planned: int) -> float:
    """Return the level of a one-sided test with this many seeds, however often it was made before.

    An error of ``α = 1 - level`` is spent on all looks together. A share of 0.8 α is for all looks up to the planned
    number of seeds N, by O'Brien and Fleming's boundary for continuous looks: the test statistic must exceed
    ``c / √(n / N)``, where ``2 (1 - Φ(c)) = 0.8 α`` by the reflection principle of Brownian motion. Beyond the plan,
    each doubling of N has a boundary of this form, with a fifth of the error of the last: 0.16 α up to 2 N, 0.032 α up
    to 4 N, and so on; the sum is α. No look has to be counted. Student's t takes the place of the normal distribution
    at the same level.

    Args:
        level: The level of a test that is made once, such as 0.975.
        seeds: The number of seeds, n.
        planned: The number of seeds planned before the first look, N.

    Source:
        O'Brien and Fleming, A Multiple Testing Procedure for Clinical Trials, Biometrics 35, 1979; Lan and DeMets,
        Discrete Sequential Boundaries for Clinical Trials, Biometrika 70, 1983; levels with Student's t: Jennison and
        Turnbull, Group Sequential Methods, 2000, section 4.4.

    Example:
        >>> [round(1 - level_now(0.975, seeds, planned=10), 6) for seeds in (5, 10, 20, 40)]
        [0.000501, 0.01, 0.002, 0.0004]
    """
    doublings = max(0, math.ceil(math.log2(seeds / planned)))
    spent = (1 - level) * _BY_PLAN * _LATER**doublings
    bar = -float(special.ndtri(spent / 2))
    return float(special.ndtr(bar / math.sqrt(seeds / (planned * 2**doublings))))


def level_at_plan(level: float) -> float:
    """Return the level of the look at which the planned number of seeds is reached.

    Example:
        >>> round(level_at_plan(0.975), 4)
        0.99
    """
    return level_now(level, 1, 1)
