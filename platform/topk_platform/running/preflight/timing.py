"""The expected time of a trial or an ensemble, from a few steps of a similar one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from topk_platform.protocol import ArmProgress
from topk_platform.specs import Recipe, Trial, digest
from topk_platform.training.ensemble import Ensemble
from topk_platform.training.process import trial_process
from topk_platform.training.run import Learner, prepared_learner
from topk_platform.training.setup import dataset_of

__all__ = ["trial_seconds"]

_MEASURING_SECONDS = 20.0
_STEPS_SECONDS = 0.3  # the steps of a longer epoch are timed only for this long


@dataclass(frozen=True)
class _Pace:
    """The speed of trials that share data, network and batches.

    Args:
        step: Seconds of a step.
        validation: Seconds of a validation.
    """

    step: float
    validation: float

    def seconds(self, recipe: Recipe, samples: int) -> float:
        """Return the expected time of a trial with this many training samples."""
        steps = recipe.epochs * math.ceil(samples / recipe.batch_size)
        return steps * self.step + self.validation * sum(map(recipe.evaluates, range(1, recipe.epochs + 1)))


def trial_seconds(arms: Sequence[ArmProgress]) -> dict[str, float]:
    """Return the expected seconds of each arm's next trial, or ensemble, by arm ID.

    Among arms that share data, network, batches and loss only the first one is timed, because the others differ only in
    their numbers of epochs and training images. If time runs out before all combinations are timed, an arm whose loss
    was not timed gets the time of another loss, and arms whose network was not timed are missing.
    """
    until = time.monotonic() + _MEASURING_SECONDS
    paces: dict[tuple[str, str], _Pace] = {}
    of_kind: dict[str, _Pace] = {}
    samples: dict[str, int] = {}
    expected = {}
    for kind, arm, trials in _kinds_first(arms):
        key, regime = (kind, arm.arm.loss.name), digest(arm.arm.regime)
        if key not in paces and time.monotonic() < until:
            with trial_process(trials[0]):  # with a worker's settings, such as its number of threads
                paces[key] = _pace(prepared_learner(trials))
            of_kind.setdefault(kind, paces[key])
        if pace := paces.get(key, of_kind.get(kind)):
            if regime not in samples:
                samples[regime] = len(dataset_of(trials[0]).train)
            expected[arm.arm_id] = pace.seconds(trials[0].setting.recipe, samples[regime])
    return expected


def _kinds_first(arms: Sequence[ArmProgress]) -> list[tuple[str, ArmProgress, list[Trial]]]:
    """Return each arm's kind, arm and next trials, beginning with one arm of every kind."""
    slots = [(arm, slot) for arm in arms if (slot := arm.next_slot()) is not None]
    blocks = [(arm, [arm.trial(member) for member in arm.block(slot)]) for arm, slot in slots]
    each = [(_kind(trials), arm, trials) for arm, trials in blocks]
    first = {kind: arm for kind, arm, _ in reversed(each)}
    return sorted(each, key=lambda entry: entry[1] is not first[entry[0]])


def _kind(trials: Sequence[Trial]) -> str:
    """Return a digest of all that decides how long a step takes, except the loss; an ensemble's size is part of it."""
    arm, recipe = trials[0].arm, trials[0].setting.recipe
    data = (arm.regime.dataset, arm.regime.options)
    batches = (recipe.batch_size, recipe.optimizer, recipe.augmentation, recipe.numerics)
    return digest((data, arm.model, arm.loss.head, batches, len(trials)))


def _pace(learner: Learner) -> _Pace:
    # The first step compiles kernels and reserves memory, which may take as long as all the rest.
    learner.advance(lambda: True)
    _validation_seconds(learner)
    return _Pace(_step_seconds(learner), _validation_seconds(learner))


def _step_seconds(learner: Learner) -> float:
    """Return how long a step takes, measured over the epoch's next steps."""
    done, until = learner.step, time.perf_counter() + _STEPS_SECONDS
    return _seconds(lambda: learner.advance(lambda: time.perf_counter() >= until)) / (learner.step - done)


def _validation_seconds(learner: Learner) -> float:
    """Return about how long a validation takes, measured on at most as many samples as were trained on."""
    if isinstance(learner, Ensemble):
        return _seconds(learner.validate)
    whole = learner.dataset.validation
    part = whole.take(
        torch.arange(min(len(whole), learner.step * learner.batches.size), device=whole.labels.device)
    )
    learner.dataset = replace(learner.dataset, validation=part)
    seconds = _seconds(learner.validate)
    learner.dataset = replace(learner.dataset, validation=whole)
    return seconds * len(whole) / len(part)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return time.perf_counter() - began
