"""A learner that replays its training steps on a GPU as a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from topk_platform.specs import Trial
from topk_platform.training.graphs.recording import StepGraph, rehearsed
from topk_platform.training.session import Session
from topk_platform.training.steps.epoch import Epoch

__all__ = ["GraphedSession"]


@dataclass
class GraphedSession(Session):
    """A session that records one step as a CUDA graph and replays it for every full batch.

    Small networks take most of a step for starting hundreds of kernels, one by one; a graph starts them all at once.
    The first steps, the last step of each epoch and batches of another size run as usual. On the CPU, every step does.
    """

    graph: StepGraph | None = None
    lr: Tensor = field(default_factory=lambda: torch.zeros(()))
    """The learning rate on the GPU, where replayed kernels read it."""
    phase: tuple[object, ...] = ()
    """The loss and its weights, which a graph depends on."""
    eager: int = 0
    """The number of full steps of this phase that ran as usual."""

    before: ClassVar[int] = 3
    """Steps before a recording: they make the optimiser's state and load the kernels."""
    record: ClassVar[type[StepGraph]] = StepGraph

    @classmethod
    def prepare(cls, trial: Trial) -> GraphedSession:
        """Return a fresh session."""
        session = cast("GraphedSession", super().prepare(trial))
        if session.replays:
            session.lr = torch.zeros((), device=trial.device)
            session.optimizer.register_step_pre_hook(session._use_tensor)
        return session

    @property
    def replays(self) -> bool:
        """Whether the device has graphs."""
        return self.trial.device == "cuda"

    def _use_tensor(self, optimizer: torch.optim.Optimizer, _args: object, _keywords: object) -> None:
        for group in optimizer.param_groups:
            group["lr"] = self.lr

    def _begun(self, done: int) -> Epoch:
        """Return an epoch of batches as they are before augmentation, which is a part of the step."""
        epoch = super()._begun(done)
        epoch.batches = self.batches._plain(done)
        return epoch

    def _step(self, inputs: Tensor, target: Tensor) -> Tensor:
        if not self.replays:
            return self._whole_step(inputs, target)
        self.lr.fill_(self.rate(0, self.step))
        self._note_phase()
        last = (self.step + 1) % self.epoch_steps == 0  # it also measures the gradient's density
        if last or len(target) < self.batches.size:
            return self._whole_step(inputs, target)
        if self.eager < self.before:
            return self._eager_step(inputs, target)
        if self.graph is None:
            self.graph = self._recorded(inputs, target)
        self.step += 1
        return self.graph(inputs, target)

    def _whole_step(self, inputs: Tensor, target: Tensor) -> Tensor:
        return super()._step(*self.batches._augmented(inputs, target))

    def _eager_step(self, inputs: Tensor, target: Tensor) -> Tensor:
        self.eager += 1
        if self.eager < self.before:
            return self._whole_step(inputs, target)
        with rehearsed():
            return self._whole_step(inputs, target)

    def _note_phase(self) -> None:
        """Forget the graph where a step differs from the recorded one: another loss, or other class weights."""
        epoch = self.step // self.epoch_steps
        now = self.loss.module, self.recipe.reweights(epoch)
        if now != self.phase:
            self.phase, self.eager, self.graph = now, 0, None

    def _recorded(self, inputs: Tensor, target: Tensor) -> StepGraph:
        step = self.step
        with _capturable(self.optimizer):
            graph = self.record(self._whole_step, inputs, target, self._streams().values())
        self.step = step
        return graph

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that :meth:`state` returned."""
        super().load_state(state)
        self.phase, self.graph = (), None


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
