"""The remaining work of a study, and an estimate of its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from topk_platform.errors import MissingDataError, UserError
from topk_platform.protocol import ArmProgress, Durations, StudyProgress
from topk_platform.records.history import StudyRows, last_counted, progress_of
from topk_platform.records.ledger import Ledger
from topk_platform.records.recorded import as_recorded
from topk_platform.records.run_notes import DataNote
from topk_platform.records.storage.store import Store
from topk_platform.running.cluster.machine import local_workers
from topk_platform.running.counted import Counted, outdated
from topk_platform.running.preflight.recorded_speeds import recorded_seconds
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import Study
from topk_platform.specs.fields import check_call

__all__ = ["Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """A study's plan.

    Args:
        study: The study, with the budget that was asked for.
        progress: The state of its arms.
        durations: How long their trainings take.
        workers: How many workers it is planned for.
        outdated: Why recorded trials of unfinished arms do not count and are trained again.
        data: What is to know of the data of each regime, by its name: its numbers of samples, and notes such as on
            classes that a split lacks. It is empty if nothing is left to run, because then no data are read.
        lacking: What this machine lacks to run the study, its GPU first, then its data; times then come from recorded
            speeds, see :mod:`~topk_platform.running.preflight.recorded_speeds`.
    """

    study: Study
    progress: StudyProgress
    durations: Durations
    workers: int
    outdated: tuple[str, ...] = ()
    data: Mapping[str, DataNote] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[ArmProgress, ...]:
        """The states of its arms, in its order."""
        return tuple(self.progress.arms.values())

    @property
    def left(self) -> int:
        """How many trials have not ended."""
        return self.progress.left

    def seconds(self, workers: int = 1) -> float:
        """Return the expected seconds until all trials have ended on a number of workers.

        Pruning and early stopping only shorten them.
        """
        return self.progress.seconds(self.durations, workers)

    def trial_seconds(self, arm: ArmProgress) -> float:
        """Return the expected seconds of one of an arm's trials: its part of the training of an ensemble."""
        return self.durations.of(arm.arm_id) / arm.arm.protocol.ensemble


def plan(study: Study, options: RunOptions | None = None, **given: Any) -> Plan:
    """Return what is done and what is left of a study; nothing is written and no worker started.

    For arms without ended trials, the expected time comes from a few steps on this machine, timed once for all arms
    that share data, network, batches and loss. For such arms, each trial counts in full, although the pruner may stop
    it.
    The start of Ray and of its workers, tens of seconds on an idle machine, is not included.
    Trials count as done if they counted in the last run. If every trial has ended, the data are not read; ``run``
    checks whether they are still the same. Without the study's GPU or its data the plan says what it knows, see
    :attr:`Plan.lacking`.

    Args:
        study: The study.
        options: The options of the run that is planned.
        given: Options by their names, in place of those in ``options``.

    Raises:
        UserError: if something is wrong with the study, its data, an option or the store.
    """
    check_call(plan, locals())
    options = (options or RunOptions()).but(**given)
    whole = options.whole(study)
    options.part(whole)  # wrong options are refused before a store is opened
    ledger = Ledger.open(Store.open(options.store), study.name)
    part = options.part(as_recorded(whole, ledger))
    rows = StudyRows(ledger, part.arms)
    counted = Counted(rows, part, part, RunOptions(workers=options.workers), last_counted(ledger, part))
    if len(counted.finished()) == len(part.arms):
        return _plan(counted, lambda _: {})
    return _plan_with_data(counted, options)


def _plan_with_data(counted: Counted, options: RunOptions) -> Plan:
    """Return the plan of a study that is not finished: its data are read, and a few steps are timed where needed."""
    # These load torch, which a plan with nothing left does not need.
    from topk_platform.data import data_at  # noqa: PLC0415
    from topk_platform.running.preflight.arm_checks import check_device  # noqa: PLC0415
    from topk_platform.running.preflight.timing import trial_seconds  # noqa: PLC0415
    from topk_platform.running.preflight.training_splits import data_notes  # noqa: PLC0415

    study, lacking, data = counted.part, list[str](), dict[str, DataNote]()
    if not all(history.ended_seconds() for history in counted.histories().values()):
        try:
            check_device(study)
        except UserError as error:
            lacking.append(str(error))
    with data_at(options.data):
        try:
            counted.check(options.download and not lacking)
            data = data_notes(study)
        except MissingDataError as error:
            lacking.append(str(error))
        made = _plan(counted, recorded_seconds if lacking else trial_seconds)
    left = [arm.arm_id for arm in made.arms if arm.left]
    why = tuple(outdated(study, counted.rows.ledger, counted.identities, left))
    return replace(made, outdated=why, data=data, lacking=tuple(lacking))


def _plan(counted: Counted, guess: Callable[[Sequence[ArmProgress]], Mapping[str, float]]) -> Plan:
    """Return the plan, with guesses of the time of arms of which no trial has ended."""
    histories = counted.histories()
    progress = progress_of(counted.part, counted.identities, histories)
    durations = Durations({i: history.ended_seconds() for i, history in histories.items()})
    durations.guess(guess([a for i, a in progress.arms.items() if a.left and not durations.knows(i)]))
    # Counting GPUs loads torch, which a plan with nothing left does not need.
    at_once = counted.options.workers or (local_workers(counted.part) if progress.left else 1)
    return Plan(counted.part, progress, durations, at_once)
