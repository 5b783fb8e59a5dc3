"""The trial of a slot: its values, its thresholds, and everything that its result depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from topk_platform.identity import Identity
from topk_platform.protocol.arm_progress import ArmProgress
from topk_platform.protocol.lane import Slot
from topk_platform.protocol.search.pruning import Stopping, stopping_values
from topk_platform.specs import Loss, NoPruning, Scalar, Study, Trial, active

if TYPE_CHECKING:
    from topk_platform.protocol.search.suggest import Searcher

__all__ = ["Proposer"]


class Proposer:
    """Makes an arm's trials from what has ended.

    Args:
        study: The study.
        identity: The identity of the rows that count.
        progress: What has ended of the arm.
        origin: What has ended of the arm whose best configurations the searches start from, if there is one.
    """

    def __init__(
        self, study: Study, identity: Identity, progress: ArmProgress, origin: ArmProgress | None = None
    ) -> None:
        self._study, self._identity = study, identity
        self._progress, self._origin = progress, origin
        self._arm, self._arm_id = progress.arm, study.arm_id(progress.arm)
        self._searchers: dict[int, Searcher] = {}

    def trial(self, slot: Slot, block: Sequence[Slot]) -> Trial:
        """Return the trial of a slot whose history is complete.

        Args:
            slot: The slot.
            block: The slots that train together, including this one.
        """
        phase, number, seed = slot
        study, identity = self._study, self._identity
        values, stopping = self._values_and_stopping(slot)
        return Trial(
            study=study.name,
            arm_id=self._arm_id,
            arm=self._arm.searched(1),
            topk=study.topk,
            targets=study.targets,
            phase=phase,
            number=number,
            seed=seed,
            root=study.seed,
            values=values,
            dataset_fingerprint=identity.dataset_fingerprint,
            code_version=identity.code_version,
            stop_below=stopping.below,
            spare=stopping.spare,
            together=() if len(block) == 1 else tuple(n if phase == "search" else s for _, n, s in block),
            threads=study.threads,
            device=study.device,
            environment=identity.environment,
            origin=identity.origin,
            measures=study.measures,
        )

    def _values_and_stopping(self, slot: Slot) -> tuple[Mapping[str, Scalar], Stopping]:
        phase, number, _ = slot
        arm, progress = self._arm, self._progress
        if phase == "confirm":
            return progress.searched[number].values if arm.is_searched else {}, Stopping()
        known = progress.known(number)
        values = self._searcher(number).suggest(arm.repeats.position(number), known)
        pruner = arm.protocol.pruner if len(arm.objectives) == 1 else NoPruning()
        return values, stopping_values(pruner, arm.recipe, known)

    def _searcher(self, number: int) -> Searcher:
        """Return the searcher of a trial's search, made once; each search has its own random draws."""
        from topk_platform.protocol.search.suggest import Searcher  # noqa: PLC0415 - imports Optuna, which counting trials does not need

        repeats, lanes = self._arm.repeats, self._progress.lanes
        search = repeats.search_of(number)
        if search not in self._searchers:
            self._searchers[search] = Searcher(
                f"{self._arm_id}/{search}" if search else self._arm_id,
                self._loss(search),
                self._arm.protocol.sampler,
                lambda position: lanes[search].known(repeats.number_at(search, position)),
                len(self._arm.objectives),
            )
        return self._searchers[search]

    def _loss(self, search: int) -> Loss:
        """Return the loss with a search's first values: those that the origin's search chose, as far as they fit.

        Values fit if the space has the dimension and holds them. A dimension that becomes active by them, and has a
        value in neither, takes its smallest value or its first option. If no trial of the origin's search was
        completed, the first values stay as they are.
        """
        loss, chosen = self._arm.loss, () if self._origin is None else self._origin.lanes[search].chosen
        if not chosen:
            return loss
        values = {name: chosen[0].values[name] for name in loss.space if name in chosen[0].values}
        fitting = {name: value for name, value in values.items() if loss.space[name].holds(value)}
        ends = {name: dimension.ends[0] for name, dimension in loss.space.items()}
        return replace(loss, first=active(loss.space, {**ends, **loss.first, **fitting}))
