"""The rules by which search trials are stopped early, as plain values.

:mod:`topk_platform.protocol.search.pruning` computes their thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

from topk_platform.specs.fields import Checked, Count, Inside, Share

__all__ = ["NoPruning", "Quantile"]


@dataclass(frozen=True)
class NoPruning:
    """No pruning: every search trial trains to its end."""

    rungs: ClassVar[tuple[float, ...]] = ()


@dataclass(frozen=True)
class Quantile(Checked):
    """Stop a search trial that is behind its arm's earlier trials.

    At each rung, a trial is stopped if its validation metric is below the given quantile of the values that the earlier
    trials of the same arm had at this rung.

    Args:
        rungs: Fractions of the epochs, in ``(0, 1)``, at which trials are compared.
        quantile: In ``[0, 1]``; 0.5 is the median.
        startup: How many earlier trials must have reached a rung before anything is stopped there.
    """

    rungs: tuple[Inside, ...] = (0.25, 0.5)
    quantile: Share = 0.5
    startup: Count = 4


Pruner = NoPruning | Quantile
"""All rules by which search trials are stopped."""

PRUNERS: tuple[type[Pruner], ...] = get_args(Pruner)
