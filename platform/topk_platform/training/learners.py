"""The learners of single trials, besides the usual session."""

from __future__ import annotations

from topk_platform.specs import Trial
from topk_platform.training.remembering import RememberingSession
from topk_platform.training.retrained import RetrainedSession
from topk_platform.training.session import Session
from topk_platform.training.shown import ShownSession

__all__ = ["LEARNERS", "learner_of", "session_of"]

LEARNERS: dict[str, type[Session]] = {
    "remembering": RememberingSession,
    "retrained": RetrainedSession,
    "shown": ShownSession,
}
"""Learners by the name that :attr:`~topk_platform.specs.Arm.additions` gives them."""


def learner_of(trial: Trial) -> str:
    """Return the name of the learner that a single trial needs; empty for the usual session."""
    usual = trial.setting.recipe.additions.get("learner", "")
    return "remembering" if trial.arm.loss.remembers else usual


def session_of(trial: Trial) -> Session:
    """Return a fresh session of a single trial, of the class that it needs."""
    name = learner_of(trial)
    return (LEARNERS[name] if name else Session).prepare(trial)
