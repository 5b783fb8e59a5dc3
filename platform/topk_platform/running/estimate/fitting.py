"""Trying batch sizes of a study's arms in this machine's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from topk_platform.data import data_at
from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard
from topk_platform.running.estimate.batch_sizes import ArmProbe, Probe, arms_to_probe
from topk_platform.running.machine.resources import available_memory, local_cpus
from topk_platform.running.preflight.checks import check_device, check_study
from topk_platform.specs import Arm, Choice, Int, Study, Trial, canonical_json
from topk_platform.training.probing import (
    Attempts,
    CpuAttempts,
    CudaAttempts,
    StepError,
    largest,
    least_parts,
)
from topk_platform.training.setup import dataset_of

__all__ = ["Candidate", "first_trial", "probe"]

_GIB = 2**30


def probe(
    study: Study,
    *,
    only: str | Sequence[str] | None = None,
    memory: float | None = None,
    data: str | Path | None = None,
    report: Callable[[Arm], None] | None = None,
) -> Probe:
    """Return the largest batch of each of a study's arms that fits on this machine.

    Whole training steps are tried, including the optimiser's state: on a GPU in this process, on the CPU in a process
    with limited memory. Arms that need the same memory are tried once.

    Args:
        study: The study.
        only: A glob over arm names, ``regime/model/loss``, or several.
        memory: GiB for a trial. On a GPU the default is all free memory, or the study's fraction of it. On the CPU it
            is the available memory, divided by the number of trials that run at once.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        report: Called with each arm before it is tried.

    Raises:
        UserError: if something is wrong with the study or its data, memory is not above 0, this machine lacks the
            study's device, or the device is the CPU and this machine does not run Linux.
    """
    study = arms_to_probe(study, only, memory)
    check_device(study)
    with data_at(data):
        trials = _trials(study, check_study(study))
        given = _default_memory(study) if memory is None else round(memory * _GIB)
        probes = {
            candidate.trial.arm.name: result
            for kind in _kinds(trials)
            for candidate, result in zip(kind, _probed(kind, given, report), strict=True)
        }
    return Probe(study, given, tuple(probes[arm.name] for arm in study.arms))


@dataclass(frozen=True)
class Candidate:
    """A trial whose batch sizes are tried, with the facts of its data that decide its memory.

    Args:
        trial: The trial.
        samples: The number of samples in its training split.
        shape: The shape of an input.
        classes: The number of classes.
    """

    trial: Trial
    samples: int
    shape: tuple[int, ...]
    classes: int

    @classmethod
    def of(cls, trial: Trial) -> Self:
        """Read the trial's data and return the candidate."""
        dataset = dataset_of(trial)
        return cls(trial, len(dataset.train), dataset.shape, dataset.classes)

    @property
    def batch(self) -> int:
        """The largest batch that the arm may ask for."""
        loss, size = self.trial.arm.loss, self.trial.arm.recipe.batch_size
        match loss.space.get("batch_size", loss.fixed.get("batch_size", size)):
            case Choice(options):
                size = max(int(option) for option in options if isinstance(option, int))
            case Int(_, high):
                size = high
            case int(fixed):
                size = fixed
        return min(size, self.samples)

    @property
    def kind(self) -> str:
        """A text of everything that memory use depends on; it is equal for candidates that need the same memory."""
        arm = self.trial.arm
        recipe = replace(
            arm.recipe,
            epochs=1,
            batch_size=1,
            accumulate=1,
            learning_rate=1.0,
            weight_decay=0.0,
            schedule="constant",
            milestones=(),
            warmup=0.0,
            evaluate_every=1,
            keep=(),
            patience=None,
            test_crops="",
            after=None,
        )
        return canonical_json((self.shape, self.classes, arm.model, arm.loss, arm.k, recipe))


def first_trial(study: Study, arm: Arm, identity: Identity) -> Trial:
    """Return the first trial of an arm, as if nothing of the arm had ended."""
    board = ArmBoard(study, arm, identity)
    first = board.next_slot()
    assert first is not None  # noqa: S101 - for the type checker: nothing of this board has ended
    return board.trial(first)


def _trials(study: Study, identities: Mapping[str, Identity]) -> list[Candidate]:
    trials = (first_trial(study, arm, identities[study.arm_id(arm)]) for arm in study.arms)
    return [Candidate.of(trial) for trial in trials]


def _kinds(candidates: list[Candidate]) -> list[list[Candidate]]:
    kinds: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        kinds.setdefault(candidate.kind, []).append(candidate)
    return list(kinds.values())


def _probed(
    kind: list[Candidate], memory: int | None, report: Callable[[Arm], None] | None
) -> Iterator[ArmProbe]:
    first = max(kind, key=lambda candidate: candidate.samples)
    if report is not None:
        report(first.trial.arm)
    if first.trial.together:
        for candidate in kind:
            yield _result(candidate, problem="ensembles are not probed")
        return
    with _attempts(first.trial, memory) as attempts:
        most, problem = _most(attempts, first)
        parts: dict[int, int | None] = {}
        for candidate in kind:
            batch = candidate.batch
            if most and batch not in parts:
                parts[batch] = 1 if batch <= most else _parts(attempts, batch, most)
            yield _result(candidate, min(most, candidate.samples), parts.get(batch), problem)


def _result(
    candidate: Candidate, most: int = 0, accumulate: int | None = None, problem: str = ""
) -> ArmProbe:
    return ArmProbe(candidate.trial.arm, candidate.samples, candidate.batch, most, accumulate, problem)


def _attempts(trial: Trial, memory: int | None) -> CpuAttempts | CudaAttempts:
    if trial.device == "cuda" or memory is None:
        return CudaAttempts(trial, memory)
    return CpuAttempts(trial, memory)


def _most(attempts: Attempts, candidate: Candidate) -> tuple[int, str]:
    """Return the largest batch that fits, 0 if none does, and the problem; empty if there is none."""
    size = 0

    def fits(batch: int) -> bool:
        nonlocal size
        size = batch
        return attempts.fits(size)

    try:
        most = largest(fits, candidate.samples, candidate.batch)
    except StepError as error:
        more = "two do not fit, and " if size == 1 and candidate.batch > 1 else ""
        return 0, f"{more}a training step of batch size {size} fails: {error}"
    return most, _scoring_problem(attempts) if most else "not even a batch of one sample fits"


def _scoring_problem(attempts: Attempts) -> str:
    try:
        return "" if attempts.scores_fit() else "batches fit, but not as many samples as are scored at once"
    except StepError as error:
        return f"scoring the validation split fails: {error}"


def _parts(attempts: Attempts, batch: int, most: int) -> int | None:
    def fits(parts: int) -> bool:
        try:
            return attempts.fits(batch, parts)
        except StepError:  # for example, batch normalisation refuses a part of one sample
            return False

    return least_parts(fits, batch, most)


def _default_memory(study: Study) -> int | None:
    if study.device == "cuda":
        return int(torch.cuda.mem_get_info()[0] * study.gpu_share) if study.gpu_share < 1 else None
    return available_memory() // max(local_cpus() // study.threads, 1)
