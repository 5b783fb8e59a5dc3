"""How the races of a study stand, and which seeds of each arm count because of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from topk_platform.protocol.arm_progress import ArmProgress
from topk_platform.protocol.racing import race, racing_groups, racing_step
from topk_platform.specs import Study

__all__ = ["hold_race", "hold_races", "rivals_of"]


_Arm = TypeVar("_Arm", bound=ArmProgress)


def rivals_of(study: Study, arms: Mapping[str, _Arm]) -> list[dict[str, _Arm]]:
    """Return the arms that race with one another, by identity; empty for a study without racing.

    Args:
        study: The study, which says which arms race.
        arms: By arm identity; arms that are missing here do not race.
    """
    groups = ([study.arm_id(arm) for arm in group] for group in racing_groups(study))
    return [{arm_id: arms[arm_id] for arm_id in group if arm_id in arms} for group in groups]


def hold_race(study: Study, rivals: Mapping[str, ArmProgress]) -> None:
    """Let no arm be confirmed beyond the current round of its race.

    Args:
        study: The study, which has a racing rule.
        rivals: The arms of one race, by identity.
    """
    assert study.racing is not None  # noqa: S101 - for the type checker: without racing there are no rivals
    results = {arm_id: arm.results() for arm_id, arm in rivals.items()}
    standing = race(study.racing, racing_step([arm.arm for arm in rivals.values()]), study.seeds, results)
    for arm_id, arm in rivals.items():
        arm.limit(standing.until, standing.last(arm_id, study.seeds))


def hold_races(study: Study, arms: Mapping[str, ArmProgress]) -> None:
    """Let no arm be confirmed beyond the current round of its race, in all races of a study.

    Args:
        study: The study.
        arms: By arm identity.
    """
    for rivals in rivals_of(study, arms):
        hold_race(study, rivals)
