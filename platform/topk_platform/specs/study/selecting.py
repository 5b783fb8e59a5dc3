"""A study of some of another study's arms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from topk_platform.errors import UserError
from topk_platform.specs.study.study_fields import StudyFields

__all__ = ["arms_like"]

S = TypeVar("S", bound=StudyFields)


def arms_like(study: S, patterns: str | Sequence[str]) -> S:
    """Return the study with the arms whose names match any of the globs.

    Args:
        study: The study.
        patterns: Globs over arm names, ``regime/model/loss``.

    Raises:
        UserError: if a glob matches no arm.
    """
    names = _matching(study, (patterns,) if isinstance(patterns, str) else patterns)
    arms = tuple(arm for arm in study.arms if arm.name in names)
    return dataclasses.replace(
        study,
        arms=arms,
        published=[number for number in study.published if any(map(number.names, arms))],
        baseline=study.baseline if any(arm.loss.label == study.baseline for arm in arms) else None,
        claims=[claim for claim in study.claims if names.issuperset(claim.arms)],
    )


def _matching(study: StudyFields, globs: Sequence[str]) -> set[str]:
    names = [arm.name for arm in study.arms]
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            raise UserError(f"--only {glob!r} matches no arm of {study.name}; arms: {names}")
    return {name for name in names if any(fnmatchcase(name, glob) for glob in globs)}
