"""Training steps on a GPU that are replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from topk_platform.training.graphs.recording import Step, StepGraph, rehearsed

__all__ = ["Replay"]


class Replay:
    """Makes training steps: it records one as a CUDA graph and replays it for every full batch.

    Small networks take most of a step for starting hundreds of kernels, one by one; a graph starts them all at once.
    The first steps and batches of another size run as usual.

    Args:
        step: Trains on inputs and labels, and returns the loss.
        optimizer: The optimiser of the step. It reads the learning rate from a tensor, as replayed kernels do.
        size: The samples of a full batch.
        generators: The random streams that the step draws from.
        device: The device.
    """

    before = 3
    """Steps before a recording: they make the optimiser's state and load the kernels."""

    def __init__(
        self,
        step: Step,
        optimizer: torch.optim.Optimizer,
        size: int,
        generators: Iterable[Generator],
        device: str,
    ) -> None:
        self.graph: StepGraph | None = None
        self._train, self._optimizer, self._size, self._generators = step, optimizer, size, [*generators]
        self._lr = torch.zeros((), device=device)
        self._phase: tuple[object, ...] = ()
        self._done = 0
        optimizer.register_step_pre_hook(self._use_tensor)

    def __call__(
        self, inputs: Tensor, target: Tensor, *, rate: float, phase: tuple[object, ...], usual: bool
    ) -> Tensor:
        """Make a step and return its loss, which is valid until the next step.

        Args:
            inputs: A batch.
            target: Its labels.
            rate: The learning rate.
            phase: What a graph depends on. If it differs from the last step's, a graph is recorded anew.
            usual: Whether the step must not be a replay.
        """
        self._lr.fill_(rate)
        if phase != self._phase:
            self.forget()
            self._phase, self._done = phase, 0
        if usual or len(target) < self._size:
            return self._train(inputs, target)
        if self._done < self.before:
            self._done += 1
            if self._done < self.before:
                return self._train(inputs, target)
            with rehearsed():
                return self._train(inputs, target)
        if self.graph is None:
            with _capturable(self._optimizer):
                self.graph = StepGraph(self._train, inputs, target, self._generators)
        return self.graph(inputs, target)

    def forget(self) -> None:
        """Record the step anew before the next replay."""
        self._phase, self.graph = (), None

    def _use_tensor(self, optimizer: torch.optim.Optimizer, _args: object, _keywords: object) -> None:
        for group in optimizer.param_groups:
            group["lr"] = self._lr


@contextmanager
def _capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Let Adam be recorded; outside of a recording it warns of its own permission."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False
