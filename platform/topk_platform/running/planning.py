"""What a study still has to do, and about how long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from topk_platform.data import data_at
from topk_platform.records import ArmHistory, Ledger, Store, read_history
from topk_platform.running.checks import Checked, check_device, check_study, with_budget
from topk_platform.running.study import make_board
from topk_platform.search import ArmBoard
from topk_platform.specs import Arm, Study
from topk_platform.training import Session
from topk_platform.training.clock import Stopwatch

__all__ = ["ArmPlan", "Plan", "plan"]

_MEASURING_SECONDS = 20.0
_EPOCH_SECONDS = 10.0  # of an epoch that takes longer, so many are timed


@dataclass(frozen=True)
class ArmPlan:
    """One arm's share of a plan.

    Args:
        arm: The arm.
        searched: Search trials that have ended.
        confirmed: Confirmations of the best configuration that have ended.
        left: Trials still to end.
        trial_seconds: About how long one takes.
        measured: Whether that is the mean of its ended trials, rather than an extrapolated epoch.
    """

    arm: Arm
    searched: int
    confirmed: int
    left: int
    trial_seconds: float
    measured: bool


@dataclass(frozen=True)
class Plan:
    """A study's plan: its arms, and seconds of training left, one worker alone."""

    study: Study
    arms: tuple[ArmPlan, ...]

    @property
    def left(self) -> int:
        """Trials still to end."""
        return sum(arm.left for arm in self.arms)

    @property
    def seconds(self) -> float:
        """Seconds of training left; pruning and early stopping only shorten it."""
        return sum(arm.left * arm.trial_seconds for arm in self.arms)


def plan(
    study: Study,
    *,
    store: str | Path = "runs",
    trials: int | None = None,
    seeds: int | None = None,
    only: str | Sequence[str] | None = None,
    data: str | Path | None = None,
    download: bool = False,
) -> Plan:
    """Return what is done and what is left of a study; nothing is written and no worker started.

    Arms without an ended trial are timed here by an epoch of their first, or by the start of a long one, for some
    seconds in all; the rest take the mean of those. A first step and validation, in which kernels are compiled, are
    not timed.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.
        only: A glob over arm names, ``regime/model/loss``, or several.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        download: Whether to download into it the datasets that are not there.

    Raises:
        UserError: if something is wrong with the study, its data or the store.
    """
    study = with_budget(study.only(only) if only else study, trials, seeds)
    with data_at(data):
        return _plan(check_study(study, download), store)


def _plan(checked: Checked, store: str | Path) -> Plan:
    study = checked.study
    ledger = Ledger.open(Store.open(store), study.name)
    identities = checked.on_noted_machine(ledger)
    histories = read_history(ledger, study, identities)
    boards = make_board(study, ledger, identities).arms
    known = {arm_id: seconds for arm_id, history in histories.items() if (seconds := _mean_seconds(history))}
    unknown = [board for arm_id, board in boards.items() if arm_id not in known and board.left]
    if unknown:
        check_device(study)
    guessed = _measure(unknown)
    fallback = sum(guessed.values()) / len(guessed) if guessed else 0.0
    arms = [
        ArmPlan(
            arm=histories[arm_id].arm,
            searched=sum(number in board.searched for number in range(board.trials)),
            confirmed=study.seeds - len(board.wanted()) if not board.searching and board.best() else 0,
            left=board.left,
            trial_seconds=known.get(arm_id, guessed.get(arm_id, fallback)),
            measured=arm_id in known,
        )
        for arm_id, board in boards.items()
    ]
    return Plan(study, tuple(arms))


def _mean_seconds(history: ArmHistory) -> float:
    seconds = [row["train_seconds"] for row in history.rows() if row["status"] in ("completed", "pruned")]
    return sum(seconds) / len(seconds) if seconds else 0.0


def _measure(boards: Sequence[ArmBoard]) -> dict[str, float]:
    until = time.monotonic() + _MEASURING_SECONDS
    measured = {}
    for board in boards:
        if time.monotonic() < until and (slot := next(iter(board.ready()), None)) is not None:
            measured[board.arm_id] = _guess(Session.prepare(board.trial(slot)))
    return measured


def _guess(session: Session) -> float:
    recipe = session.recipe
    # What is done once in a process, such as compiling kernels or memory's first use, may take as long as all the rest.
    session.advance(lambda: True)
    _validation_seconds(session)
    epoch = _epoch_seconds(session, _EPOCH_SECONDS)
    validation = _validation_seconds(session)
    if epoch < 1:  # what disturbs so short a measurement only lengthens it
        epoch = min(epoch, _seconds(session.train_epoch))
        validation = min(validation, _validation_seconds(session))
    validations = sum(recipe.evaluates(number) for number in range(1, recipe.epochs + 1))
    return recipe.epochs * epoch + validations * validation


def _epoch_seconds(session: Session, enough: float) -> float:
    """Return about how long an epoch takes, from as many of its steps left as are made in ``enough`` seconds."""
    done, until = session.step, time.perf_counter() + enough
    with Stopwatch(session.trial.device) as watch:
        session.advance(lambda: time.perf_counter() >= until)
    return watch.seconds * session.epoch_steps / (session.step - done)


def _validation_seconds(session: Session) -> float:
    """Return about how long a validation takes, from no more samples than were trained on so far."""
    whole = session.dataset.validation
    part = whole.take(
        torch.arange(min(len(whole), session.step * session.batches.size), device=whole.labels.device)
    )
    session.dataset = replace(session.dataset, validation=part)
    seconds = _seconds(session.validate)
    session.dataset = replace(session.dataset, validation=whole)
    return seconds * len(whole) / len(part)


def _seconds(work: Callable[[], Tensor]) -> float:
    began = time.perf_counter()
    work().tolist()  # a GPU is waited for
    return time.perf_counter() - began
