"""One training step as a CUDA graph: its kernels are recorded once, and started together for every later batch."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from topk_platform.errors import UserError

__all__ = ["StepGraph", "rehearsed"]

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
