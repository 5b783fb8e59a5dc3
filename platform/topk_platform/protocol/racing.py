"""Races between arms. A pure function of the results decides which arms drop out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from topk_platform.specs import Arm, Racing, Study

__all__ = ["Race", "Results", "race", "racing_groups", "racing_step"]

Results = Mapping[int, float]
"""An arm's validation metric by the rank of the seed, for the confirmations that have ended."""


@dataclass(frozen=True)
class Race:
    """The state of a race.

    Args:
        until: How many seeds may start now, for every arm that still races.
        stopped: The number of seeds after which each dropped-out arm stopped, by arm identity.
    """

    until: int
    stopped: Mapping[str, int] = field(default_factory=dict)

    def last(self, arm_id: str, seeds: int) -> int:
        """Return how many seeds count for an arm, at most ``seeds``."""
        return min(seeds, self.stopped.get(arm_id, seeds))


def racing_groups(study: Study) -> list[list[Arm]]:
    """Return the groups of arms that race with one another: those with the same regime, model and selection metric."""
    if study.racing is None:
        return []
    groups: dict[tuple[str, str, str], list[Arm]] = defaultdict(list)
    for arm in study.arms:
        groups[arm.regime.name, arm.model.label, arm.metric].append(arm)
    return list(groups.values())


def racing_step(arms: Sequence[Arm]) -> int:
    """Return the number of seeds per round. In every arm it is whole ensembles, equally many for each search."""
    return math.lcm(*(arm.protocol.ensemble * arm.repeats.seed_blocks for arm in arms))


def race(racing: Racing, step: int, seeds: int, results: Mapping[str, Results | None]) -> Race:
    """Return the state of a race.

    Arms are compared after ``racing.first`` seeds, rounded up to whole rounds, and after each further round. An arm
    drops out if the arm with the highest mean is better by a one-sided Wilcoxon signed-rank test over the seeds, with a
    p-value of at most ``racing.level``. The race waits at a round until all its arms have the results.

    Args:
        racing: The rule.
        step: How many seeds make a round.
        seeds: How many seeds the study asks for.
        results: Results by arm identity, in the arms' order; None for an arm that has nothing to confirm and never
            will.

    Example:
        >>> good, bad = ({seed: 0.9 - worse + seed / 100 for seed in range(1, 6)} for worse in (0, 0.1))
        >>> race(Racing(first=5), 1, 8, {"good": good, "bad": bad})
        Race(until=8, stopped={'bad': 5})
        >>> race(Racing(first=5), 1, 8, {"good": good, "bad": {}}).until
        5
    """
    left: dict[str, Results] = {arm_id: own for arm_id, own in results.items() if own is not None}
    stopped: dict[str, int] = {}
    for point in range(math.ceil(racing.first / step) * step, seeds, step):
        if len(left) < 2:
            break
        values = {
            arm_id: tuple(own[seed] for seed in range(1, point + 1) if seed in own)
            for arm_id, own in left.items()
        }
        if any(len(own) < point for own in values.values()):
            return Race(point, stopped)
        leader = max(values.values(), key=sum)
        for arm_id in [i for i, own in values.items() if _is_behind(leader, own, racing.level)]:
            stopped[arm_id] = point
            del left[arm_id]
    return Race(seeds, stopped)


@lru_cache(maxsize=4096)  # every result repeats the comparisons of earlier rounds
def _is_behind(leader: tuple[float, ...], other: tuple[float, ...], level: float) -> bool:
    from scipy.stats import wilcoxon  # noqa: PLC0415 - takes half a second to import, and most studies do not race

    # Rounded, because equal differences must be equal to the last bit to count as ties.
    differences = [round(ours - theirs, 12) for ours, theirs in zip(leader, other, strict=True)]
    if not any(differences):
        return False
    return bool(wilcoxon(differences, alternative="greater").pvalue <= level)
