"""The files of confirmations that were never trained."""

from __future__ import annotations

import torch

from topk_platform.records import Store
from topk_platform.records.artifacts.guesses import save_guesses
from topk_platform.records.artifacts.ranks import save_ranks
from topk_platform.specs import Trial


def keep_made_up(store: Store, trial: Trial) -> dict[str, str]:
    """Store ranks and guesses of two made-up images for a confirmation; return their SHA-256 for its record.

    Arms have images of their own, so that intervals cover seeds alone.
    """
    if trial.phase != "confirm":
        return {}
    ranks, guesses = torch.zeros(4, 2, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64)
    return {
        "ranks": save_ranks(store, trial, ranks, trial.arm_id),
        "guesses": save_guesses(store, trial, guesses, trial.arm_id),
    }
