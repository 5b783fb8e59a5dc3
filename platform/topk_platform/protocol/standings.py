"""The standings of a study's races, and the seeds of each arm that count as a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from topk_platform.protocol.arm_progress import ArmProgress
from topk_platform.protocol.racing import race, racing_groups, racing_step
from topk_platform.specs import Study

__all__ = ["hold_race", "hold_races", "rivals_of"]


_Arm = TypeVar("_Arm", bound=ArmProgress)


def rivals_of(study: Study, arms: Mapping[str, _Arm]) -> list[dict[str, _Arm]]:
    """Return the arms of each race, by identity; an empty list for a study without racing.

    Args:
        study: The study, which says which arms race.
        arms: The arms, by identity. Arms that are missing here do not race.
    """
    groups = ([study.arm_id(arm) for arm in group] for group in racing_groups(study))
    return [{arm_id: arms[arm_id] for arm_id in group if arm_id in arms} for group in groups]


def hold_race(study: Study, rivals: Mapping[str, ArmProgress]) -> None:
    """Limit the confirmations of one race's arms to the current round.

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
    """Limit the confirmations of all arms to the current rounds of their races.

    Args:
        study: The study.
        arms: The arms, by identity.
    """
    for rivals in rivals_of(study, arms):
        hold_race(study, rivals)
