"""Runs that are compared in pairs though they were made on different kinds of machine."""

from __future__ import annotations

from collections.abc import Mapping

from topk_platform.identity import machine_of
from topk_platform.results.confirmed_runs import Runs

__all__ = ["Unlike", "unlike"]

Unlike = Mapping[int, tuple[str, str]]
"""By seed the kinds of machine on which an arm's run and the baseline's were made, where they differ."""


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
