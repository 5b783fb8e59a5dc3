"""Studies as text, a few lines."""

from __future__ import annotations

from topk_platform.specs.checks import first_few
from topk_platform.specs.study.study_fields import StudyFields

__all__ = ["study_to_text"]

_MOST_NAMES = 12  # in a line


def study_to_text(study: StudyFields) -> str:
    """Return a study's question, search and budget, one line each.

    Args:
        study: The study.
    """
    return "\n".join([f"{study.name}: {study.description}".removesuffix(": "), *_facts(study)])


def _facts(study: StudyFields) -> list[str]:
    arms = study.arms
    searched = sum(arm.is_searched for arm in arms)
    ks = sorted({arm.k for arm in arms})
    named = {
        "regimes": dict.fromkeys(arm.regime.name for arm in arms),
        "models": dict.fromkeys(arm.model.label for arm in arms),
        "losses": dict.fromkeys(arm.loss.label for arm in arms),
    }
    budget = f"{study.trials} search trials in each of {searched}, " if searched else ""
    return [
        *(f"{kind}: {first_few(list(names), _MOST_NAMES)}" for kind, names in named.items()),
        f"{len(arms)} arms of a regime, a model and a loss: {budget}{study.seeds} seeds each, "
        f"{study.size} trainings at most",
        f"K = {', '.join(map(str, ks))}; shown are {', '.join(study.show)}; "
        f"baseline {study.baseline or 'none'}",
    ]
