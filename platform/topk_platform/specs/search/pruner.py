"""The rules by which search trials are stopped early, as plain values.

:mod:`topk_platform.protocol.search.pruning` computes their thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from topk_platform.specs.fields import Checked, Count, Inside, NonNegative, Several, Share

__all__ = ["NoPruning", "Patient", "Quantile", "SuccessiveHalving"]


@dataclass(frozen=True)
class NoPruning:
    """No pruning: every search trial trains to its end."""


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


@dataclass(frozen=True)
class SuccessiveHalving(Checked):
    """Let only the best part of an arm's trials past each rung (Jamieson and Talwalkar 2016; Li et al. 2020).

    The rungs are ``first``, ``first · factor``, ``first · factor²``, ... of the epochs. A trial passes a rung if it
    is among the best ``⌊n / factor⌋`` (at least the best one) of the n trials that reached the rung: itself and the
    earlier ones of the same arm. No trial waits for others at a rung: it is compared with those that have reached it.

    Args:
        first: The first rung, in (0, 1).
        factor: One in ``factor`` trials passes.
        startup: How many earlier trials must have reached a rung before anything is stopped there.
    """

    first: Inside = 0.125
    factor: Several = 2
    startup: Count = 4


@dataclass(frozen=True)
class Patient(Checked):
    """Spare a trial that another rule would stop, as long as its own metric still improves.

    At a rung the trial is stopped only if the best of its last ``patience + 1`` validations is more than
    ``tolerance`` below the best of the validations before them. Otherwise the next rung decides again. This is Optuna's
    ``PatientPruner``.

    Args:
        pruner: The rule that would stop it.
        patience: How many validations without improvement are allowed.
        tolerance: In units of the metric, at least 0.
    """

    pruner: Quantile | SuccessiveHalving = field(default_factory=Quantile)
    patience: Count = 2
    tolerance: NonNegative = 0.0


Pruner = NoPruning | Quantile | SuccessiveHalving | Patient
"""All rules by which search trials are stopped."""

PRUNERS: tuple[type[Pruner], ...] = get_args(Pruner)


def rungs_of(pruner: Pruner) -> tuple[float, ...]:
    """Return the fractions of the epochs at which a rule compares trials.

    Example:
        >>> rungs_of(Patient(SuccessiveHalving(first=0.25)))
        (0.25, 0.5)
    """
    match pruner:
        case Quantile(rungs=rungs):
            return rungs
        case SuccessiveHalving(first=first, factor=factor):
            steps = []
            while first < 1:
                steps.append(first)
                first *= factor
            return tuple(steps)
        case Patient(pruner=inner):
            return rungs_of(inner)
    return ()
