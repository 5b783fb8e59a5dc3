"""The training of one trial's network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from topk_platform.data import Dataset, Split
from topk_platform.metrics import Scorer
from topk_platform.specs import Inputs, Recipe, Trial
from topk_platform.training.losses import BoundLoss
from topk_platform.training.scoring import Scored, score, score_crops, score_test, scorer_of
from topk_platform.training.setup import batches_of, dataset_of, initialised, inputs_of, loss_of
from topk_platform.training.steps.batches import (
    Batches,
    Epoch,
    Normalisation,
    order_states,
)
from topk_platform.training.steps.cuda_graphs import Replay
from topk_platform.training.steps.optim import (
    clip,
    density_of,
    learning_rate,
    make_optimizer,
    optimizer_state,
    precision,
)

__all__ = ["Session"]

_SLOWER = 9  # steps: step t averages with min(decay, t / (t + 9))


@dataclass
class Session:
    """The network, loss, optimiser, data and random streams of one trial: a learner with one member.

    What a recipe adds is here too: the average of :class:`~topk_platform.specs.EMA`, whose weights are validated, kept
    and exported, and steps that a GPU replays.
    """

    trial: Trial
    recipe: Recipe
    dataset: Dataset
    normalisation: Normalisation | None
    batches: Batches
    model: nn.Module
    loss: BoundLoss
    optimizer: torch.optim.Optimizer
    scorer: Scorer
    average: dict[str, Tensor] = field(default_factory=dict)
    """The averaged weights and buffers by name; empty if the recipe has no average."""
    replay: Replay | None = None
    """Makes the steps where a GPU replays them, else None."""
    step: int = 0
    density: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    epoch: Epoch | None = None

    @classmethod
    def prepare(cls, trial: Trial) -> Session:
        """Return a fresh session, which depends on no earlier trial.

        Raises:
            ChangedError: if the data differ from those that the trial was planned with.
        """
        dataset, recipe = dataset_of(trial), trial.setting.recipe
        normalisation = Normalisation.of(dataset, trial.device)
        scorer = scorer_of(trial, dataset)
        loss = loss_of(trial, dataset)
        model = initialised(trial, dataset).to(trial.device)
        if recipe.numerics.channels_last:
            model = model.to(memory_format=torch.channels_last)
        dataset = dataset.to(trial.device)
        session = cls(
            trial=trial,
            recipe=recipe,
            dataset=dataset,
            normalisation=normalisation,
            batches=batches_of(trial, recipe, dataset, normalisation),
            model=model,
            loss=loss,
            optimizer=make_optimizer(recipe, [*model.parameters(), *loss.module.parameters()]),
            scorer=scorer,
        )
        if recipe.average is not None:
            session.average = _copied(model.state_dict())
        if recipe.numerics.cuda_graphs and trial.device == "cuda":
            session.use_replay()
        return session

    def use_replay(self) -> None:
        """Let a GPU replay the steps from now on."""
        streams = self._streams().values()
        self.replay = Replay(self._train, self.optimizer, self.batches.size, streams, self.trial.device)

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch."""
        return len(self.batches)

    def advance(self, pause: Callable[[], bool] = lambda: False) -> Tensor | None:
        """Train to the end of the current epoch, or of a new one, or pause after a step.

        On the CPU, a loss that is not finite ends the epoch at once. On a GPU, only the end of the epoch shows it,
        because reading the loss at every step would wait for the device.

        Args:
            pause: Called after every step except the last one of an epoch. If it returns True, training pauses there.

        Returns:
            ``(1, 2)``: the mean loss over the epoch's samples and the gradient density; None if it paused.
        """
        self.model.train()
        epoch = self.step // self.epoch_steps
        self.loss.begin(epoch, reweighted=self.recipe.reweights(epoch))
        self.epoch = self.epoch or self._begun(0)
        total = self.epoch.total
        for inputs, labels, rows in self.epoch.batches:
            loss = self._step(inputs, labels, rows)
            total += loss * len(labels)
            if self.trial.device == "cpu" and not math.isfinite(loss.item()):
                break
            if pause() and self.step % self.epoch_steps:
                return None
        self.epoch = None
        return torch.stack([total / len(self.batches.split), self.density.to(total.device)])[None]

    def _begun(self, done: int) -> Epoch:
        total = torch.zeros((), dtype=torch.float64, device=self.trial.device)
        return Epoch(self.batches.taken(done), [self.batches.order.get_state()], total)

    def _step(self, inputs: Tensor, labels: Tensor, rows: Tensor | None = None) -> Tensor:
        """Make a step with a batch that is not augmented yet; return its mean loss."""
        rate, epoch = self.rate(0, self.step), self.step // self.epoch_steps
        self.step += 1
        if self.replay is not None:
            # A graph depends on the loss and its weights. The epoch's last step also measures the gradient's density.
            phase, last = (self.loss.module, self.recipe.reweights(epoch)), self.step % self.epoch_steps == 0
            return self.replay(inputs, labels, rate=rate, phase=phase, eager=last)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self._train(inputs, labels, rows)
        if self.recipe.average is not None:
            decay = min(self.recipe.average.decay, self.step / (self.step + _SLOWER))
            for name, value in self.model.state_dict().items():
                if value.is_floating_point():
                    self.average[name].lerp_(value.detach(), 1 - decay)
                else:
                    self.average[name].copy_(value)
        return loss

    def _train(self, inputs: Tensor, labels: Tensor, rows: Tensor | None = None) -> Tensor:
        inputs, target = self.batches.augmented(inputs, labels)
        self.optimizer.zero_grad()
        with precision(self.trial.device, self.recipe.numerics.bfloat16):
            scores = self.model(inputs)
        scores = scores.float()
        if self.step % self.epoch_steps == 0 and scores.requires_grad:
            scores.register_hook(self._note_density)
        loss = self.loss(scores, target, rows)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.recipe.clip_norm is not None:
            clip((p for group in self.optimizer.param_groups for p in group["params"]), self.recipe.clip_norm)
        self.optimizer.step()
        return loss.detach()

    def _note_density(self, gradient: Tensor) -> None:
        self.density = density_of(gradient)

    def rate(self, member: int = 0, step: int | None = None) -> float:  # noqa: ARG002 - there is one member
        """Return the learning rate of a step, by default the last one."""
        return learning_rate(
            self.recipe, self.step - 1 if step is None else step, self.recipe.epochs * self.epoch_steps
        )

    def validate(self) -> Tensor:
        """Score the validation split with the weights that are shown.

        Returns:
            ``(1, 1 + measures)``: 1 if all scores are finite, else 0, followed by the measures.
        """
        split, device = self.dataset.validation, self.trial.device
        with self._showing():
            scored = score(self.model, split, self.normalisation, self.recipe, device, self.scorer)
        return scored.measures[None]

    @contextmanager
    def _showing(self) -> Iterator[None]:
        """Give the network the averaged weights in the block, if there is an average, and then the trained ones."""
        if not self.average:
            yield
            return
        trained = _copied(self.model.state_dict())
        self.model.load_state_dict(self.average)
        try:
            yield
        finally:
            self.model.load_state_dict(trained)

    def test(self, member: int, weights: dict[str, Tensor]) -> Scored:
        """Load these weights into the network and score the test split with it."""
        how = score_crops if self.recipe.test_crops else score
        model = self.network(member, weights)

        def shown(split: Split, scorer: Scorer) -> Scored:
            return how(model, split, self.normalisation, self.recipe, self.trial.device, scorer)

        return score_test(shown, self.dataset, self.scorer)

    def weights(self, member: int = 0) -> dict[str, Tensor]:  # noqa: ARG002 - there is one member
        """Return a copy of the weights and buffers that are shown: the network's, or their average."""
        return _copied(self.average or self.model.state_dict())

    def network(self, member: int, weights: dict[str, Tensor]) -> nn.Module:  # noqa: ARG002 - as above
        """Load these weights into the session's own network and return it."""
        self.model.load_state_dict(weights)
        return self.model

    def inputs(self, member: int) -> Inputs:  # noqa: ARG002 - as above
        """Return the description of the network's inputs."""
        return inputs_of(self.dataset, self.normalisation)

    def state(self) -> dict[str, object]:
        """Return all that the next steps depend on."""
        return {
            "model": _copied(self.model.state_dict()),
            "average": _copied(self.average),
            "loss": _copied(self.loss.module.state_dict()),
            "optimizer": optimizer_state(self.optimizer),
            "streams": {name: stream.get_state() for name, stream in self._streams().items()},
            "step": self.step,
            **order_states(self.epoch, [self.batches]),
        }

    def load_state(self, state: dict[str, object]) -> None:
        """Continue from a state that :meth:`state` returned."""
        parts = cast("dict[str, Any]", state)
        self.model.load_state_dict(parts["model"])
        for name, value in parts["average"].items():
            self.average[name].copy_(value)
        self.loss.load_state(parts["loss"], (parts["step"] - 1) // self.epoch_steps)
        self.optimizer.load_state_dict(parts["optimizer"])
        for name, stream in self._streams().items():
            stream.set_state(parts["streams"][name])
        self.batches.order.set_state(parts["orders"][0])
        self.step = parts["step"]
        self.epoch = None
        if parts["total"] is not None:
            self.epoch = self._begun(self.step % self.epoch_steps)
            self.epoch.total += parts["total"].to(self.trial.device)
        if self.replay is not None:
            self.replay.forget()

    def _streams(self) -> dict[str, torch.Generator]:
        return {"changes": self.batches.changes, "loss": self.loss.generator}


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}
