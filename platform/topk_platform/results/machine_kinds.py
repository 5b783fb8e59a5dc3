"""Pairs of compared runs that were made on different kinds of machine."""

from __future__ import annotations

from collections.abc import Mapping

from topk_platform.identity import machine_of
from topk_platform.results.confirmed_runs import Runs

__all__ = ["Unlike", "unlike"]

Unlike = Mapping[int, tuple[str, str]]
"""The kinds of machine of an arm's run and of the baseline's, by seed, where they differ."""


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
