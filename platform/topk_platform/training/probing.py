"""The largest batch whose training step fits into a device's memory, determined by trying."""

from __future__ import annotations

import gc
import math
import multiprocessing
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import torch

from topk_platform.data import Images, Split
from topk_platform.errors import UserError
from topk_platform.specs import Recipe, Trial
from topk_platform.training.graphs.graphed import GraphedSession
from topk_platform.training.learners import session_of
from topk_platform.training.process.faults import is_out_of_memory
from topk_platform.training.process.state import trial_process
from topk_platform.training.session import Session

__all__ = [
    "Attempts",
    "CpuAttempts",
    "CudaAttempts",
    "StepError",
    "largest",
    "least_parts",
    "take_scores",
    "take_step",
]

_SMALL = 2  # samples per part of the first step, which creates the optimiser's state
_PRECISE = 16  # the answer is exact to one part in this many

Outcome = Literal["fits", "memory", "error"]


class StepError(RuntimeError):
    """A training step failed for a reason other than memory."""


class Attempts(Protocol):
    """Tries training steps of one trial within a device's memory."""

    def fits(self, size: int, parts: int = 1) -> bool:
        """Return whether a step fits with a batch of ``size`` samples, taken in ``parts`` parts.

        Raises:
            StepError: if it fails for another reason.
        """
        ...

    def scores_fit(self) -> bool:
        """Return whether scoring fits, for as many validation samples as are scored at once.

        Raises:
            StepError: if it fails for another reason.
        """
        ...


def largest(fits: Callable[[int], bool], limit: int, start: int = 1) -> int:
    """Return the largest batch that fits, to one part in 16, by doubling or halving, then bisection; 0 if none does.

    Args:
        fits: Returns whether a batch of this size fits; if it does, all smaller ones do.
        limit: The largest size to try.
        start: The first size to try.

    Example:
        >>> largest(lambda size: size <= 100, limit=50_000, start=32), largest(lambda size: True, limit=50)
        (100, 50)
    """
    fitting, failing, size = 0, limit + 1, min(start, limit)
    while failing - fitting > (1 if failing > limit else max(1, fitting // _PRECISE)):
        if fits(size):
            fitting = size
        else:
            failing = size
        size = min(2 * fitting, limit) if failing > limit else (fitting + failing) // 2
    return fitting


def least_parts(fits: Callable[[int], bool], size: int, part: int) -> int | None:
    """Return the least number of parts in which a batch fits, to one in 16, or None.

    Args:
        fits: Returns whether the batch fits in this many parts.
        size: The size of the batch.
        part: The largest size that fits as a batch of its own, at least 1. Parts may have to be smaller, because the
            inputs of the whole batch are in memory as well.

    Example:
        >>> least_parts(lambda parts: parts >= 5, size=256, part=64)
        5
    """
    samples_that_fit = largest(lambda samples: fits(math.ceil(size / samples)), limit=part, start=part)
    return math.ceil(size / samples_that_fit) if samples_that_fit else None


def take_step(trial: Trial, size: int, parts: int = 1) -> None:
    """Train one step with ``size`` samples, as the trial would, after a small first step.

    The first step creates the optimiser's state, such as momentum. Images in files are replaced by random images of
    the same shape, so that nothing has to be decoded.

    Args:
        trial: The trial.
        size: The number of samples, at most that of the training split.
        parts: The number of parts in which a batch is taken.
    """
    with trial_process(trial):
        session = session_of(_in_parts(trial, parts))
        for samples in (min(_SMALL * parts, size), size):
            _train(session, samples)


def take_scores(trial: Trial) -> None:
    """Score as many validation samples as are scored at once, while the optimiser's state is in memory.

    Args:
        trial: The trial.
    """
    with trial_process(trial):
        session = session_of(trial)
        _train(session, min(_SMALL, len(session.dataset.train)))
        split = session.dataset.validation
        part = next(split.in_order())
        few = Split(part, split.labels[: len(part)])
        session.dataset = replace(session.dataset, validation=few)
        session.validate().tolist()


def _train(session: Session, samples: int) -> None:
    # A graph keeps memory of its own, so one has to be recorded.
    steps = session.before + 2 if isinstance(session, GraphedSession) else 1
    split = _excerpt(session.dataset.train, steps * samples, session.trial.device)
    session.batches = replace(session.batches, split=split, size=samples)
    session.train_epoch().tolist()


def _in_parts(trial: Trial, parts: int) -> Trial:
    """Return the trial with batches in parts, the arm's loss from the start, and two steps of the whole network."""
    usual = trial.arm.recipe
    recipe: Recipe = replace(usual, accumulate=parts, epochs=usual.epochs + 1)
    return replace(trial, arm=replace(trial.arm, recipe=recipe))


def _excerpt(split: Split, size: int, device: str) -> Split:
    rows = torch.linspace(0, len(split) - 1, size, device=split.labels.device).long()
    if not isinstance(split.inputs, Images):
        return split.take(rows)
    inputs = torch.randint(0, 256, (size, *split.inputs.shape[1:]), dtype=torch.uint8, device=device)
    return Split(inputs, split.labels[rows])


_WORK: dict[str, Callable[..., None]] = {"step": take_step, "scores": take_scores}


def _attempt(trial: Trial, work: str, numbers: tuple[int, ...]) -> tuple[Outcome, str]:
    """Do the work and free its memory."""
    outcome = _tried(trial, work, numbers)
    gc.collect()
    return outcome


def _tried(trial: Trial, work: str, numbers: tuple[int, ...]) -> tuple[Outcome, str]:
    try:
        _WORK[work](trial, *numbers)
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything; its text is reported
        if is_out_of_memory(error):
            return "memory", ""
        return "error", f"{type(error).__name__}: {error}"
    return "fits", ""


def _judged(outcome: Outcome, text: str) -> bool:
    if outcome == "error":
        raise StepError(text)
    return outcome == "fits"


@dataclass
class CudaAttempts:
    """Attempts on the GPU, in this process.

    Args:
        trial: The trial.
        memory: The bytes that may be used; by default all that are free.
    """

    trial: Trial
    memory: int | None = None

    def __enter__(self) -> Self:
        if self.memory is not None:
            total = torch.cuda.get_device_properties().total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, self.memory / total))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.cuda.set_per_process_memory_fraction(1.0)

    def fits(self, size: int, parts: int = 1) -> bool:
        """Return whether a step fits."""
        return self._fits("step", size, parts)

    def scores_fit(self) -> bool:
        """Return whether scoring fits."""
        return self._fits("scores")

    def _fits(self, work: str, *numbers: int) -> bool:
        outcome, text = _attempt(self.trial, work, numbers)
        torch.cuda.empty_cache()
        return _judged(outcome, text)


class CpuAttempts:
    """Attempts on the CPU, in a separate process with a limit on its memory.

    When a machine's memory is used up, Linux kills some process, not always the one that used it. With the limit,
    allocations fail in this process. If it dies nonetheless, the step did not fit.

    Args:
        trial: The trial.
        memory: The bytes of private memory that the process may have in all.

    Raises:
        UserError: on systems that have no such limit.
    """

    def __init__(self, trial: Trial, memory: int) -> None:
        if sys.platform != "linux":
            raise UserError(f"the memory of a step can be probed only on Linux, got {sys.platform}")
        self.trial = trial
        self.memory = memory
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._connection: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def fits(self, size: int, parts: int = 1) -> bool:
        """Return whether a step fits."""
        return self._fits("step", size, parts)

    def scores_fit(self) -> bool:
        """Return whether scoring fits."""
        return self._fits("scores")

    def _fits(self, work: str, *numbers: int) -> bool:
        if self._process is None:
            self._start()
        try:
            self._connection.send((work, numbers))
            outcome, text = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):  # it died
            outcome, text = "memory", ""
            self._end()
        return _judged(outcome, text)

    def _start(self) -> None:
        self._connection, other = self._context.Pipe()
        arguments = (other, self.trial.to_json(), self.memory)
        self._process = self._context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()
        try:
            self._connection.recv()
        except EOFError:
            self._end()
            raise StepError("the process for the step ended before the step began") from None

    def _end(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(connection: Connection, text: str, memory: int) -> None:
    import resource  # noqa: PLC0415 - not every system has it

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is handled by the parent, which ends this process
    trial = Trial.from_json(text)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    needed = memory + _untouched()
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    connection.send("ready")
    while True:
        try:
            work, numbers = connection.recv()
        except EOFError:
            return
        connection.send(_attempt(trial, work, numbers))


def _untouched() -> int:
    """Return how many bytes of private memory the process has reserved and never used, as libraries do."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    data, used = (1024 * int(fields[name].split()[0]) for name in ("VmData", "RssAnon"))
    return max(data - used, 0)
