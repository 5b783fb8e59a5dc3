"""Training steps on a GPU that are recorded once as a CUDA graph and replayed for every full batch."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from topk_platform.errors import UserError

__all__ = ["Replay", "StepGraph", "rehearsed"]

Step = Callable[[Tensor, Tensor], Tensor]


class StepGraph:
    """A recorded step. A call copies a batch to where the recorded kernels read it, and starts all of them at once.

    Recording does not run the step. Each call changes the weights, the optimiser's state and running statistics. Python
    code of the step runs once, while it is recorded.

    Args:
        step: Trains on inputs and labels, and returns the loss.
        inputs: A batch, whose shape all later batches must have.
        target: Its labels.
        generators: The random streams on the GPU that the step draws from. Each call draws new numbers.
    """

    def __init__(self, step: Step, inputs: Tensor, target: Tensor, generators: Iterable[Generator]) -> None:
        self._inputs, self._target = inputs.clone(), target.clone()
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        # Only this thread's work is recorded; others may decode images meanwhile.
        with _without_collection(), torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._loss = step(self._inputs, self._target)
        # A recording resets the streams' positions on a CUDA stream of its own. On a busy GPU this could come after
        # the first replay has set them, which would then draw other numbers.
        torch.cuda.synchronize()

    def __call__(self, inputs: Tensor, target: Tensor) -> Tensor:
        """Train on a batch; return its loss, which is valid until the next call."""
        self._inputs.copy_(inputs)
        self._target.copy_(target)
        self._graph.replay()
        return self._loss


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect no cycles in the block: CUDA does not let an earlier trial's graph end while a step is recorded."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def rehearsed() -> Iterator[None]:
    """Refuse a step in the block that waits for the GPU, which no graph can.

    Raises:
        UserError: if it does.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "synchronizing CUDA operation" not in str(error):
            raise
        raise UserError(
            "Numerics.cuda_graphs needs a step that never waits for the GPU, but the network, the loss or the "
            "augmentation reads a value from it (.item(), .tolist(), .cpu(), or a mask as an index): "
            "leave out cuda_graphs, or compute on the GPU alone"
        ) from error
    finally:
        torch.cuda.set_sync_debug_mode(before)


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
        self, inputs: Tensor, target: Tensor, *, rate: float, phase: tuple[object, ...], eager: bool
    ) -> Tensor:
        """Make a step and return its loss, which is valid until the next step.

        Args:
            inputs: A batch.
            target: Its labels.
            rate: The learning rate.
            phase: What a graph depends on. If it differs from the last step's, a graph is recorded anew.
            eager: Whether the step must not be a replay, as the last one of an epoch.
        """
        self._lr.fill_(rate)
        if phase != self._phase:
            self.forget()
            self._phase, self._done = phase, 0
        if eager or len(target) < self._size:
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
