"""Rules that concern several arms of a study, or the arms and their budget together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.errors import UserError
from topk_platform.specs.checks import check

if TYPE_CHECKING:
    from topk_platform.specs.arms.arm import Arm
    from topk_platform.specs.study.study import Study

__all__ = ["check_gpus", "check_origins", "check_searches", "with_equal_searches"]


def check_origins(study: Study) -> None:
    """Raise ``UserError`` if an arm is to start from one that is not there, searches nothing, or waits for it."""
    for arm in study.arms:
        if not arm.start_from:
            continue
        told = f"study {study.name}: arm {arm.name} cannot start from {arm.start_from!r}"
        if (origin := study.origin(arm)) is None:
            raise UserError(f"{told}; arms: {[other.name for other in study.arms]}")
        check(origin.is_searched, f"{told}, which searches nothing")
        seen = [arm.name]
        while origin is not None:
            seen.append(origin.name)
            check(origin.name not in seen[:-1], f"{told}, which waits for it: {' -> '.join(seen)}")
            origin = study.origin(origin)


def check_gpus(study: Study) -> None:
    """Raise ``UserError`` if GPUs are asked for that trials on a CPU, or that train together, cannot have."""
    check(
        study.device == "cuda" or not study.accelerator,
        f"study {study.name}: accelerator must be left out where trials run on the CPU, got {study.accelerator!r}",
    )
    together = [arm.name for arm in study.arms if arm.protocol.ensemble > 1]
    check(
        study.gpus != "auto" or not together,
        f"study {study.name}: gpus must be a number where trials train together, for the memory of ensembles is "
        f"not measured, got 'auto' with {', '.join(together)}",
    )


def with_equal_searches(study: Study) -> tuple[Arm, ...]:
    """Return a study's arms; those that search nothing have the others' number of searches, and so their seeds.

    Raises:
        UserError: if the arms that search are not searched equally often: their seeds would not make pairs.
    """
    searching = [arm for arm in study.arms if arm.is_searched]
    times = {arm.protocol.searches: arm.name for arm in searching or study.arms}
    told = ", ".join(f"searches={count} in {name}" for count, name in times.items())
    check(
        len(times) == 1,
        f"study {study.name}: all arms must be searched equally often, or their seeds make no pairs, got {told}",
    )
    return tuple(arm.searched(next(iter(times))) for arm in study.arms)


def check_searches(study: Study) -> None:
    """Raise ``UserError`` if the searches cannot share the trials and the seeds evenly."""
    for name, number in (("trials", study.trials), ("seeds", study.seeds)):
        check(
            number % study.searches == 0,
            f"study {study.name}: {name} must be a multiple of the {study.searches} searches of its arms, which "
            f"share them, got {number}",
        )
