"""The learners of trials: a session of a single trial, of the class that it needs, or an ensemble of several."""

from __future__ import annotations

from collections.abc import Sequence

from topk_platform.specs import Trial
from topk_platform.training.averaging import AveragedSession
from topk_platform.training.ensemble import Ensemble
from topk_platform.training.graphs.graphed import GraphedSession
from topk_platform.training.remembering import RememberingSession
from topk_platform.training.session import Session

__all__ = ["LEARNERS", "learner_of", "prepared_learner", "session_of"]

LEARNERS: dict[str, type[Session]] = {
    "averaged": AveragedSession,
    "graphed": GraphedSession,
    "remembering": RememberingSession,
}
"""Learners by the name that :attr:`~topk_platform.specs.Arm.additions` gives them."""


def learner_of(trial: Trial) -> str:
    """Return the name of the learner that a single trial needs; empty for the usual session."""
    usual = trial.setting.recipe.additions.get("learner", "")
    return "remembering" if trial.arm.loss.remembers else usual


def session_of(trial: Trial) -> Session:
    """Return a fresh session of a single trial, of the class that it needs."""
    return LEARNERS.get(learner_of(trial), Session).prepare(trial)


def prepared_learner(trials: Sequence[Trial]) -> Session | Ensemble:
    """Return a fresh learner of one trial, or of the trials of one ensemble in their order."""
    return session_of(trials[0]) if len(trials) == 1 else Ensemble.prepare(trials)
