"""The learners of single trials beside the usual session."""

from __future__ import annotations

from topk_platform.training.retrained import RetrainedSession
from topk_platform.training.session import Session
from topk_platform.training.shown import ShownSession

__all__ = ["LEARNERS"]

LEARNERS: dict[str, type[Session]] = {"retrained": RetrainedSession, "shown": ShownSession}
"""Learners by the name that :attr:`~topk_platform.specs.Recipe.additions` gives them."""
