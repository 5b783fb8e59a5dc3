"""The expected time of an arm's trials: from ended trials, or a guess before the first has ended."""

from __future__ import annotations

from topk_platform.protocol import Board
from topk_platform.records import ArmHistory
from topk_platform.running.driver.budget import Budget

__all__ = ["ended_seconds", "guess_unknown"]


def ended_seconds(history: ArmHistory) -> list[float]:
    """Return the times of an arm's ended trials that did not break off; members of an ensemble all have its time."""
    return [row["train_seconds"] for row in history.rows() if row["status"] in ("completed", "pruned")]


def guess_unknown(budget: Budget, board: Board) -> None:
    """Time a few steps of arms without an ended trial, as a plan does, if a limit of hours needs to know their times.

    Args:
        budget: The budget, whose durations get the guesses.
        board: The study's state.
    """
    unknown = [arm for i, arm in board.arms.items() if arm.left and not budget.durations.knows(i)]
    if budget.limits.timed and unknown:
        from topk_platform.running.estimate.timing import trial_seconds  # noqa: PLC0415 - torch

        budget.durations.guess(trial_seconds(unknown))
