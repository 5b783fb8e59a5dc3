"""The n-th suggestion of an arm, as a pure function of the arm and of the trials that it may know."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from topk_platform.outcomes import Ended
from topk_platform.specs import Choice, Dimension, Float, Int, Loss, Protocol, Scalar

__all__ = ["suggest", "to_optuna"]

_SOME_TIME = datetime(1970, 1, 1)  # a trial has to have one, and samplers look at none


def suggest(
    arm_id: str, loss: Loss, protocol: Protocol, number: int, history: Sequence[Ended]
) -> dict[str, Scalar]:
    """Return the values of the arm's trial ``number``.

    Number 0 takes the paper's values, the next ``protocol.random`` are drawn at random, then TPE chooses. A
    fresh in-memory Optuna study is built from ``history`` in number order, its sampler seeded by the arm and
    the number, so that equal arguments give equal values wherever and whenever it runs.

    Args:
        arm_id: Seeds the sampler.
        loss: Holds the space and the first values.
        protocol: Says how many are random.
        number: From 0.
        history: The arm's ended trials that this one may know.
    """
    if number == 0 or not loss.space:
        return dict(loss.first)
    distributions = to_optuna(loss.space)
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # not a line for every fresh study
    study = optuna.create_study(direction="maximize", sampler=_sampler(arm_id, protocol, number))
    if number > protocol.random:  # the others are told of nothing, which would take longer the more there is
        past = sorted(history, key=lambda ended: ended.number)
        study.add_trials([_told(ended, distributions) for ended in past])
    asked = study.ask(distributions)
    return {name: asked.params[name] for name in loss.space}


def to_optuna(space: Mapping[str, Dimension]) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions of a space."""
    return {name: _distribution(dimension) for name, dimension in space.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    match dimension:
        case Float(low, high, log):
            return FloatDistribution(low, high, log=log)
        case Int(low, high, log):
            return IntDistribution(low, high, log=log)
        case Choice(options):
            return CategoricalDistribution(options)


def _sampler(arm_id: str, protocol: Protocol, number: int) -> BaseSampler:
    seed = int.from_bytes(hashlib.sha256(f"{arm_id}\0{number}".encode()).digest()[:4])
    if number <= protocol.random:
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=0, multivariate=True, constant_liar=False)


class _Told(FrozenTrial):
    """A trial that the storage need not copy, for it is made for it alone: that takes longer than all the rest."""

    def __deepcopy__(self, _memo: dict[int, Any]) -> _Told:
        return self


def _told(ended: Ended, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    """Return the trial as Optuna is told of it.

    Pruned ones keep their intermediate values. Diverged and failed ones are pruned without any, which TPE ranks
    last; told as FAIL they would teach it nothing.
    """
    completed = ended.status == "completed"
    return _Told(
        number=ended.number,
        trial_id=-1,  # the storage's affair, as is the number
        state=TrialState.COMPLETE if completed else TrialState.PRUNED,
        value=ended.objective if completed else None,
        params=dict(ended.values),
        distributions=distributions,
        intermediate_values=dict(ended.curve) if ended.status == "pruned" else {},
        user_attrs={},
        system_attrs={},
        datetime_start=_SOME_TIME,
        datetime_complete=_SOME_TIME,
    )
