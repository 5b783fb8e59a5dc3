"""The expected time of an arm's trials: from ended trials, or a guess before the first has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topk_platform.protocol import Board
from topk_platform.records import ArmHistory
from topk_platform.running.driver.budget import Budget

__all__ = ["ended_seconds", "expect"]


def ended_seconds(history: ArmHistory) -> list[float]:
    """Return the times of an arm's ended trials that did not break off; members of an ensemble all have its time."""
    return [row["train_seconds"] for row in history.rows() if row["status"] in ("completed", "pruned")]


def expect(budget: Budget, board: Board, ended: Mapping[str, Sequence[float]], *, here: bool) -> None:
    """Give a budget the expected times of trials.

    Args:
        budget: The budget.
        board: The study's state.
        ended: The seconds of the trials that have ended, by arm identity.
        here: Whether trials run on this machine: then, where hours are limited, arms without an ended trial are timed,
            as by ``plan``.
    """
    unknown = [arm for arm_id, arm in board.arms.items() if arm.left and not ended[arm_id]]
    guessed: dict[str, float] = {}
    if budget.limits.timed and here and unknown:
        from topk_platform.running.estimate.timing import trial_seconds  # noqa: PLC0415 - torch

        guessed = trial_seconds(unknown)
    budget.expect(guessed, ended)
