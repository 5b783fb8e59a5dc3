"""About how long a trial takes, or an ensemble, from an epoch of it or the start of a long one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from topk_platform.search import ArmBoard
from topk_platform.specs import Trial
from topk_platform.training import Session
from topk_platform.training.clock import Stopwatch
from topk_platform.training.ensemble import Ensemble

__all__ = ["trial_seconds"]

_MEASURING_SECONDS = 20.0
_EPOCH_SECONDS = 10.0  # of an epoch that takes longer, so many are timed


def trial_seconds(boards: Sequence[ArmBoard]) -> dict[str, float]:
    """Return the seconds of each arm's next trial, or ensemble, by arm identity, of as many as there is time for."""
    until = time.monotonic() + _MEASURING_SECONDS
    measured = {}
    for board in boards:
        if time.monotonic() < until and (slot := board.next_slot()) is not None:
            measured[board.arm_id] = _guess(_prepared([board.trial(member) for member in board.block(slot)]))
    return measured


def _prepared(trials: Sequence[Trial]) -> Session | Ensemble:
    return Session.prepare(trials[0]) if len(trials) == 1 else Ensemble.prepare(trials)


def _guess(session: Session | Ensemble) -> float:
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


def _epoch_seconds(session: Session | Ensemble, enough: float) -> float:
    """Return about how long an epoch takes, from as many of its steps left as are made in ``enough`` seconds."""
    done, until = session.step, time.perf_counter() + enough
    device = session.trial.device if isinstance(session, Session) else session.trials[0].device
    with Stopwatch(device) as watch:
        session.advance(lambda: time.perf_counter() >= until)
    return watch.seconds * session.epoch_steps / (session.step - done)


def _validation_seconds(session: Session | Ensemble) -> float:
    """Return about how long a validation takes, of a large network from no more samples than were trained on so far."""
    if isinstance(session, Ensemble):
        return _seconds(session.validate)
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
