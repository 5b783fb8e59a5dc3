"""The number of trials that share a GPU with ``gpus="auto"``; the trial that needs the most memory decides it."""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from topk_platform.data import use_data_folder
from topk_platform.errors import UserError, reason
from topk_platform.identity import Identity
from topk_platform.protocol import Board
from topk_platform.running.estimate.fitting import Candidate, first_trial
from topk_platform.running.machine.devices import OWN_BYTES
from topk_platform.specs import Arm, Scalar, Study, Trial, reaching
from topk_platform.training.probing import take_scores, take_step
from topk_platform.training.process.faults import is_out_of_memory

__all__ = ["Measured", "Packing", "largest_trials", "measure", "packing"]

HEAD_ROOM = 0.2
"""The memory added for fragmentation and other values, as a fraction of the memory that a step and a scoring took."""

_UNITS = 10_000  # Ray counts a GPU in parts of this size


@dataclass(frozen=True)
class Measured:
    """The measurements on one GPU.

    Args:
        free: Bytes that no other process held.
        peaks: The most bytes that a trial of each arm took, by arm name; None if it did not fit.
    """

    free: int
    peaks: Mapping[str, int | None]


@dataclass(frozen=True)
class Packing:
    """How many trials share a GPU.

    Args:
        trials: How many, at least 1.
        arm: The arm that takes the most memory, and so decides it.
        peak: The bytes that this arm takes; None if a whole GPU is too small.
        free: The free bytes of the GPU.
    """

    trials: int
    arm: str
    peak: int | None
    free: int

    @property
    def share(self) -> float:
        """The part of a GPU that each trial takes, rounded down so that Ray puts all of them on one GPU.

        Example:
            >>> Packing(4, "a", 0, 0).share, Packing(6, "a", 0, 0).share
            (0.25, 0.1666)
        """
        return math.floor(_UNITS / self.trials) / _UNITS

    def __str__(self) -> str:
        taken = "more" if self.peak is None else f"{self.peak / 2**30:.1f}"
        many = "1 trial has" if self.trials == 1 else f"{self.trials} trials share"
        return f"{many} a GPU: {self.arm} takes {taken} of {self.free / 2**30:.1f} GiB"


def packing(measured: Sequence[Measured]) -> Packing:
    """Return how many trials share a GPU; the arm and the GPU with room for the fewest trials decide for all.

    Each trial gets room for the memory that was measured, for a fraction :data:`HEAD_ROOM` of it in addition, and for
    the memory that its process holds beside tensors. If one trial does not fit, it has a GPU to itself, without a
    limit.

    Args:
        measured: The measurements on at least one GPU, with at least one arm.

    Example:
        >>> gib = 2**30
        >>> print(packing([Measured(80 * gib, {"a": 3 * gib, "b": 9 * gib}), Measured(40 * gib, {"a": 3 * gib})]))
        6 trials share a GPU: b takes 9.0 of 80.0 GiB
    """
    packed = [_packed(arm, peak, gpu.free) for gpu in measured for arm, peak in gpu.peaks.items()]
    return min(packed, key=lambda one: one.trials)


def _packed(arm: str, peak: int | None, free: int) -> Packing:
    each = math.inf if peak is None else math.ceil(peak * (1 + HEAD_ROOM)) + OWN_BYTES
    return Packing(max(1, int(free // each)), arm, peak, free)


def largest_trials(study: Study, board: Board, identities: Mapping[str, Identity]) -> list[Trial]:
    """Return the trials to measure: the first one of each unfinished arm, with the largest whole numbers of its space.

    Memory may grow with whole numbers, such as the number of samples or the batch size. It hardly grows with real ones.

    Args:
        study: The study.
        board: Its state.
        identities: Which rows count, by arm identity.
    """
    left = [arm.arm for arm in board.arms.values() if arm.left]
    trials = [first_trial(study, arm, identities[study.arm_id(arm)]) for arm in left]
    return [replace(trial, values=_largest(trial.arm, trial.values)) for trial in trials]


def _largest(arm: Arm, values: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    for name, dimension in arm.loss.space.items():
        whole = [end for end in dimension.ends if isinstance(end, int) and not isinstance(end, bool)]
        if whole:
            values = reaching(arm.loss.space, values, name, max(whole))
    return values


def measure(trials: Sequence[str], data: str) -> Measured:
    """Return how much memory trials take on this process's GPU: one training step and one scoring each.

    Effect: the process holds a CUDA context afterwards, so it should end.

    Args:
        trials: The trials, as JSON.
        data: The folder of datasets.

    Raises:
        UserError: if a step fails for another reason than memory.
    """
    use_data_folder(data)
    candidates = [Candidate.of(Trial.from_json(text)) for text in trials]
    free = torch.cuda.mem_get_info()[0]
    kinds = {candidate.kind: candidate for candidate in candidates}
    peaks = {kind: _peak(candidate) for kind, candidate in kinds.items()}
    return Measured(free, {one.trial.arm.name: peaks[one.kind] for one in candidates})


def _peak(candidate: Candidate) -> int | None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        take_step(candidate.trial, candidate.batch, candidate.trial.setting.recipe.accumulate)
        take_scores(candidate.trial)
    except Exception as error:
        if is_out_of_memory(error):
            return None
        arm = candidate.trial.arm.name
        raise UserError(
            f"arm {arm}: gpus='auto' cannot measure its memory, give gpus a number: {reason(error)}"
        ) from error
    return torch.cuda.max_memory_reserved()
