"""The names of what is measured of a split."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["GROUPS", "accuracy_names", "candidate_names"]

GROUPS = ("many", "medium", "few")
"""Classes by their number of training samples: macro accuracies over a group are named ``many_top5`` and so on."""


def accuracy_names(topk: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the accuracies for every k: plain, macro, and macro over each group of classes.

    Example:
        >>> accuracy_names((1, 5))[:4]
        ('top1', 'top5', 'macro_top1', 'macro_top5')
    """
    kinds = ("", "macro_", *(f"{group}_" for group in GROUPS))
    return tuple(f"{kind}top{k}" for kind in kinds for k in topk)


def candidate_names(targets: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the least K that reach accuracies.

    Example:
        >>> candidate_names((0.95, 0.99))
        ('candidates95', 'candidates99')
    """
    return tuple(f"candidates{100 * target:g}" for target in targets)
