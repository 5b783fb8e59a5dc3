"""Runs that are compared in pairs though they were made on different kinds of machine."""

from __future__ import annotations

from collections.abc import Mapping

from topk_platform.identity import machine_of
from topk_platform.results.confirmed_runs import Runs

__all__ = ["Unlike", "unlike", "unlike_told"]

Unlike = Mapping[int, tuple[str, str]]
"""By seed the kinds of machine on which an arm's run and the baseline's were made, where they differ."""

_SHOWN = 3  # arms in the line


def unlike(ours: Runs, theirs: Runs) -> Unlike:
    """Return the pairs of completed runs of two arms that were made on different kinds of machine."""
    kinds = [
        {seed: machine_of(row) for seed, row in runs.confirmations.items() if row["status"] == "completed"}
        for runs in (ours, theirs)
    ]
    return {
        seed: (kinds[0][seed], kinds[1][seed])
        for seed in sorted(kinds[0].keys() & kinds[1].keys())
        if kinds[0][seed] != kinds[1][seed]
    }


def unlike_told(found: Mapping[tuple[str, str], Unlike], baseline: str | None) -> str:
    """Return the line that says which differences hold runs of different kinds of machine, or nothing.

    Args:
        found: By row and column, of those that have such pairs.
        baseline: What the differences are to.

    Example:
        >>> pairs = {("svm", "clean"): {2: ("NVIDIA L4", "NVIDIA T4")}}
        >>> unlike_told(pairs, "cross_entropy").partition("difference: ")[2]
        'svm, clean: seed 2 on NVIDIA L4, cross_entropy on NVIDIA T4.'
    """
    if not found:
        return ""
    count = sum(map(len, found.values()))
    told = [f"{row}, {column}: {_seeds(pairs, baseline or '')}" for (row, column), pairs in found.items()]
    more = [f"and {len(told) - _SHOWN} arms more"] if len(told) > _SHOWN else []
    return (
        f"Different kinds of machine within {count} pair{'s' if count > 1 else ''} of compared runs, which is part of "
        f"the difference: {'; '.join(told[:_SHOWN] + more)}."
    )


def _seeds(pairs: Unlike, baseline: str) -> str:
    by_kinds: dict[tuple[str, str], list[str]] = {}
    for seed, kinds in pairs.items():
        by_kinds.setdefault(kinds, []).append(str(seed))
    return ", ".join(
        f"seed{'s' if len(seeds) > 1 else ''} {' and '.join(seeds)} on {ours or 'unknown'}, "
        f"{baseline} on {theirs or 'unknown'}"
        for (ours, theirs), seeds in by_kinds.items()
    )
