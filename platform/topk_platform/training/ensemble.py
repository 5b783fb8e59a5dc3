"""Many small networks of one shape trained at once, each with its own data, noise and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from topk_platform.data import Dataset, Split
from topk_platform.errors import UserError
from topk_platform.metrics import Scorer
from topk_platform.specs import Augmentation, Inputs, Recipe, Trial
from topk_platform.training.losses import BoundLoss
from topk_platform.training.scoring import Scored, score, score_test, scorer_of
from topk_platform.training.setup import batches_of, dataset_of, initialised, inputs_of, loss_of
from topk_platform.training.stacking import (
    Forward,
    Together,
    check_ensemble,
    losses_together,
    stack,
    stacked_forward,
    stacked_normalisation,
    stacked_optimizer,
)
from topk_platform.training.steps.batches import (
    Batches,
    Epoch,
    Normalisation,
    order_states,
    prepared,
)
from topk_platform.training.steps.optim import (
    ColumnOptimizer,
    clip,
    density_of,
    learning_rate,
    optimizer_state,
    precision,
)

__all__ = ["Ensemble"]


@dataclass
class Ensemble:
    """A learner with several members, whose weights are stacked, ``(members, ...)``, and updated together.

    A member makes the same steps as in a :class:`Session` of its own. Only the order of sums differs.
    """

    trials: tuple[Trial, ...]
    recipe: Recipe
    recipes: tuple[Recipe, ...]
    datasets: tuple[Dataset, ...]
    normalisations: tuple[Normalisation | None, ...]
    batches: tuple[Batches, ...]
    forward: Forward
    stacked: dict[str, Tensor]
    losses: tuple[BoundLoss, ...]
    together: Together | None
    """All losses in one call; None if each member needs a call of its own."""
    normalising: tuple[Tensor, Tensor] | None
    """What normalises the batches of all members at once: shifts and scales; None if inputs are no images."""
    labels: Tensor | None
    """The labels of all training splits, ``(members, n)``, if batches are rows in a random order and no more."""
    optimizer: torch.optim.Optimizer
    scorer: Scorer
    step: int = 0
    density: Tensor | None = None
    epoch: Epoch | None = None

    @classmethod
    def prepare(cls, trials: Sequence[Trial]) -> Ensemble:
        """Return a fresh ensemble.

        Raises:
            UserError: if the networks cannot train together, see :func:`check_ensemble`.
            ValueError: if the members' training splits differ in size.
        """
        device = trials[0].device
        datasets = [dataset_of(trial) for trial in trials]
        recipes = [trial.setting.recipe for trial in trials]
        if len({len(dataset.train) for dataset in datasets}) > 1:
            raise ValueError(
                "the members' training splits must have one size, because the members share steps"
            )
        networks = [initialised(trial, dataset) for trial, dataset in zip(trials, datasets, strict=True)]
        check_ensemble(networks[0], recipes[0], ())
        losses = [loss_of(trial, dataset) for trial, dataset in zip(trials, datasets, strict=True)]
        if any(True for loss in losses for _ in loss.module.parameters()):
            raise UserError("an ensemble's loss must have no parameters of its own")
        stacked = stack(networks, device)
        scorers = [scorer_of(trial, dataset) for trial, dataset in zip(trials, datasets, strict=True)]
        groups = tuple(torch.stack(masks) for masks in zip(*(s.groups for s in scorers), strict=True))
        normalisations = [Normalisation.of(dataset, device) for dataset in datasets]
        datasets = [dataset.to(device) for dataset in datasets]
        plain = all(isinstance(data.train.inputs, Tensor) for data in datasets)
        plain = plain and recipes[0].augmentation == Augmentation()
        return cls(
            trials=tuple(trials),
            recipe=recipes[0],
            recipes=tuple(recipes),
            datasets=tuple(datasets),
            normalisations=tuple(normalisations),
            batches=tuple(
                batches_of(*parts) for parts in zip(trials, recipes, datasets, normalisations, strict=True)
            ),
            forward=stacked_forward(networks[0], stacked),
            stacked=stacked,
            losses=tuple(losses),
            together=losses_together(trials, datasets, losses, 0),
            labels=torch.stack([data.train.labels for data in datasets]) if plain else None,
            normalising=stacked_normalisation(normalisations),
            optimizer=stacked_optimizer(recipes, stacked),
            scorer=Scorer(trials[0].topk, trials[0].targets, groups, trials[0].measures),
        )

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch."""
        return len(self.batches[0])

    def advance(self, pause: Callable[[], bool] = lambda: False) -> Tensor | None:
        """Train to the end of the epoch, or pause after a step, as :meth:`Session.advance`.

        Returns:
            ``(members, 2)``: mean losses of the samples and gradient densities; None if it paused.
        """
        epoch = self.step // self.epoch_steps
        for loss in self.losses:
            loss.begin(epoch, reweighted=self.recipe.reweights(epoch))
        if any(loss.in_epoch is not None for loss in self.losses) or self.recipe.reweighting is not None:
            self.together = losses_together(self.trials, self.datasets, self.losses, epoch)
        self.epoch = self.epoch or self._begun(0)
        total = self.epoch.total
        for inputs, target in self.epoch.batches:
            total += self._step(inputs, target) * target.shape[1]
            if pause() and self.step % self.epoch_steps:
                return None
        self.epoch = None
        density = torch.zeros_like(total) if self.density is None else self.density
        return torch.stack([total / len(self.batches[0].split), density], 1)

    def _begun(self, done: int) -> Epoch:
        total = torch.zeros(len(self.trials), dtype=torch.float64, device=self.trials[0].device)
        return Epoch(self._batches(done), [batches.order.get_state() for batches in self.batches], total)

    def _batches(self, done: int) -> Iterator[tuple[Tensor, Tensor]]:
        if self.labels is not None:
            yield from self._plain_batches(self.labels, done)
            return
        for members in zip(*(batches.after(done) for batches in self.batches), strict=True):
            inputs, targets = zip(*members, strict=True)
            yield torch.stack(inputs), torch.stack(targets)

    def _plain_batches(self, labels: Tensor, done: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the stacked batches of all members, where only their order is random."""
        inputs = [dataset.train.tensor for dataset in self.datasets]
        if self.epoch_steps == 1:
            yield self._normalised(torch.stack(inputs)), labels
            return
        orders = [torch.randperm(labels.shape[1], generator=batches.order) for batches in self.batches]
        order = torch.stack(orders).to(labels.device, non_blocking=True)
        for rows in torch.split(order, self.recipe.batch_size, dim=1)[done:]:
            batch = inputs[0].new_empty(*rows.shape, *inputs[0].shape[1:])
            for member, own in enumerate(inputs):
                torch.index_select(own, 0, rows[member], out=batch[member])
            yield self._normalised(batch), labels.gather(1, rows)

    def _normalised(self, batch: Tensor) -> Tensor:
        """Return inputs ``(members, n, ...)``, each member's by its own normalisation."""
        if self.normalising is None:
            return batch
        shift, scale = self.normalising
        return torch.addcmul(shift, batch.float(), scale)

    def _forward(self, inputs: Tensor, shared: bool = False) -> Tensor:
        with precision(self.trials[0].device, self.recipe.numerics.bfloat16):
            return self.forward(inputs, shared).float()

    def _step(self, inputs: Tensor, target: Tensor) -> Tensor:
        rates = [self.rate(member, self.step) for member in range(len(self.trials))]
        for group in self.optimizer.param_groups:
            columns = isinstance(self.optimizer, ColumnOptimizer)
            group["lr"] = torch.tensor(rates) if columns else rates[0]
        scores = self._forward(inputs)
        self.step += 1
        if self.step % self.epoch_steps == 0:
            scores.register_hook(self._note_density)  # type: ignore[no-untyped-call]
        losses = self._losses(scores, target)
        for weights in self.stacked.values():
            weights.grad = None
        losses.sum().backward()  # type: ignore[no-untyped-call]
        if self.recipe.clip_norm is not None:
            clip(self.stacked.values(), self.recipe.clip_norm, stacked=True)
        self.optimizer.step()
        return losses.detach()

    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        if self.together is not None:
            return self.together(scores, target, [loss.generator for loss in self.losses])
        return torch.stack([loss(*pair) for loss, *pair in zip(self.losses, scores, target, strict=True)])

    def _note_density(self, gradient: Tensor) -> None:
        self.density = density_of(gradient)

    def rate(self, member: int, step: int | None = None) -> float:
        """Return the learning rate of a member's step, by default the last one."""
        steps = self.recipe.epochs * self.epoch_steps
        return learning_rate(self.recipes[member], self.step - 1 if step is None else step, steps)

    @torch.no_grad()
    def validate(self) -> Tensor:
        """Score the validation splits.

        Returns:
            ``(members, 1 + measures)``: 1 if all scores are finite, else 0, followed by the measures.
        """
        splits = [dataset.validation for dataset in self.datasets]
        # Each member's normalisation comes from its own training images.
        how = self.normalisations
        alike = len({each and (each.mean, each.std) for each in how}) == 1
        shared = alike and all(split.inputs is splits[0].inputs for split in splits)
        inputs = (
            prepared(splits[0].tensor.clone(), how[0])  # a network's first layer may work in place
            if shared
            else torch.stack([prepared(part.tensor, own) for part, own in zip(splits, how, strict=True)])
        )
        parts = torch.split(inputs, splits[0].at_once, dim=0 if shared else 1)
        scores = torch.cat([self._forward(part, shared) for part in parts], dim=1)
        finite = scores.isfinite().flatten(1).all(1).double()[:, None]
        return torch.cat([finite, self.scorer(scores, torch.stack([s.labels for s in splits]))], 1)

    def test(self, member: int, weights: dict[str, Tensor]) -> Scored:
        """Score the test split with one member's network and these weights."""
        trial, dataset = self.trials[member], self.datasets[member]
        network = self.network(member, weights)

        def shown(split: Split, scorer: Scorer) -> Scored:
            return score(network, split, self.normalisations[member], self.recipe, trial.device, scorer)

        return score_test(shown, dataset, scorer_of(trial, dataset))

    def weights(self, member: int) -> dict[str, Tensor]:
        """Return a copy of a member's weights."""
        return {name: value.detach()[member].clone() for name, value in self.stacked.items()}

    def network(self, member: int, weights: dict[str, Tensor]) -> nn.Module:
        """Return a separate network with these weights."""
        network = initialised(self.trials[member], self.datasets[member]).to(self.trials[member].device)
        network.load_state_dict(weights, strict=False)  # a weight that layers share has one of its names
        return network

    def inputs(self, member: int) -> Inputs:
        """Return the description of a member's inputs."""
        return inputs_of(self.datasets[member], self.normalisations[member])

    def state(self) -> dict[str, object]:
        """Return all that the next steps depend on."""
        return {
            "stacked": {name: value.detach().clone() for name, value in self.stacked.items()},
            "losses": [dict(loss.module.state_dict()) for loss in self.losses],
            "optimizer": optimizer_state(self.optimizer),
            "streams": [stream.get_state() for stream in self._streams()],
            "step": self.step,
            **order_states(self.epoch, self.batches),
        }

    def load_state(self, state: dict[str, object]) -> None:
        """Continue from a state that :meth:`state` returned."""
        parts = cast("dict[str, Any]", state)
        with torch.no_grad():
            for name, value in parts["stacked"].items():
                self.stacked[name].copy_(value)
        for loss, saved in zip(self.losses, parts["losses"], strict=True):
            loss.load_state(saved, (parts["step"] - 1) // self.epoch_steps)
        self.optimizer.load_state_dict(parts["optimizer"])
        for stream, saved in zip(self._streams(), parts["streams"], strict=True):
            stream.set_state(saved)
        for batches, order in zip(self.batches, parts["orders"], strict=True):
            batches.order.set_state(order)
        self.step = parts["step"]
        self.epoch = None
        if parts["total"] is not None:
            self.epoch = self._begun(self.step % self.epoch_steps)
            self.epoch.total += parts["total"].to(self.trials[0].device)

    def _streams(self) -> list[torch.Generator]:
        return [batches.changes for batches in self.batches] + [loss.generator for loss in self.losses]
