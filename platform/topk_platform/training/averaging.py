"""A learner that validates, keeps and exports an average of the weights that it trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor

from topk_platform.specs import Trial
from topk_platform.training.session import Session

__all__ = ["AveragedSession"]

_SLOWER = 9  # steps: step t averages with min(decay, t / (t + 9))


@dataclass
class AveragedSession(Session):
    """A session that shows the average of :class:`~topk_platform.specs.EMA`, if its recipe has one."""

    average: dict[str, Tensor] = field(default_factory=dict)
    """The averaged weights and buffers by name; empty if the recipe has no average."""

    @classmethod
    def prepare(cls, trial: Trial) -> AveragedSession:
        """Return a fresh session."""
        session = cast("AveragedSession", super().prepare(trial))
        if session.recipe.average is not None:
            session.average = _copied(session.model.state_dict())
        return session

    def _step(self, inputs: Tensor, target: Tensor) -> Tensor:
        loss = super()._step(inputs, target)
        if self.recipe.average is not None:
            decay = min(self.recipe.average.decay, self.step / (self.step + _SLOWER))
            for name, value in self.model.state_dict().items():
                if value.is_floating_point():
                    self.average[name].lerp_(value.detach(), 1 - decay)
                else:
                    self.average[name].copy_(value)
        return loss

    def validate(self) -> Tensor:
        """Return ``(1, 1 + measures)`` of the validation split, scored with the shown weights."""
        with self._holding(self.weights()):
            return super().validate()

    def weights(self, member: int = 0) -> dict[str, Tensor]:
        """Return a copy of the shown weights and buffers."""
        return _copied(self.average) if self.average else super().weights(member)

    @contextmanager
    def _holding(self, weights: dict[str, Tensor]) -> Iterator[None]:
        """Give the network these weights in the block, and the trained ones again afterwards."""
        trained = super().weights()
        self.model.load_state_dict(weights)
        try:
            yield
        finally:
            self.model.load_state_dict(trained)

    def state(self) -> dict[str, object]:
        """Return all that the next steps depend on."""
        return {**super().state(), "model": super().weights(), "average": _copied(self.average)}

    def load_state(self, state: dict[str, object]) -> None:
        """Continue from a state that :meth:`state` returned."""
        super().load_state(state)
        like = self.model.state_dict()
        average = cast("dict[str, Any]", state["average"])
        self.average = {name: value.to(like[name].device, copy=True) for name, value in average.items()}


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}
