"""All that one trial trains with, built from its spec alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor, nn

from topk_platform.data import Dataset, apply_conditions, load
from topk_platform.metrics import evaluate
from topk_platform.models import build_model
from topk_platform.specs import Recipe, Trial
from topk_platform.streams import stream_seed
from topk_platform.training.losses import BoundLoss, build_loss
from topk_platform.training.optim import learning_rate, make_optimizer, searched_recipe, split_parameters

__all__ = ["DivergedError", "Session"]

_EVALUATION_BATCH = 4096


class DivergedError(ArithmeticError):
    """The training loss or the scores are no longer finite."""


def _generator(trial: Trial, role: str, device: str = "cpu") -> Generator:
    return Generator(device).manual_seed(stream_seed(trial.study, trial.root, trial.seed, role))


def _initialised(trial: Trial, dataset: Dataset) -> nn.Module:
    # torch's layers initialise from the global generator: lend it this trial's stream, then put it back.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(
            stream_seed(trial.study, trial.root, trial.seed, "initialisation")
        )
        return build_model(trial.arm.model, dataset.shape, dataset.classes, trial.arm.loss.head)


@dataclass
class Session:
    """Model, loss, optimiser, data and random streams of one trial."""

    trial: Trial
    recipe: Recipe
    dataset: Dataset
    model: nn.Module
    loss: BoundLoss
    optimizer: torch.optim.Optimizer
    batches: Generator
    step: int = 0

    @classmethod
    def prepare(cls, trial: Trial) -> Session:
        """Return a fresh session; nothing of an earlier trial is left in it.

        Raises:
            RuntimeError: if the data at hand are not those that the trial was planned with.
        """
        source = load(trial.arm.regime)
        if source.fingerprint != trial.dataset_fingerprint:
            raise RuntimeError(
                f"dataset {trial.arm.regime.dataset} has fingerprint {source.fingerprint}, "
                f"the trial was planned with {trial.dataset_fingerprint}"
            )
        dataset = apply_conditions(source, trial.arm.regime.conditions, partial(_generator, trial))
        searched, own = split_parameters(trial.parameters)
        recipe = searched_recipe(trial.arm.recipe, searched)
        model = _initialised(trial, dataset).to(trial.device)
        module = build_loss(trial.arm.loss, own, trial.arm.k, dataset.class_counts).to(trial.device)
        return cls(
            trial=trial,
            recipe=recipe,
            dataset=dataset.to(trial.device),
            model=model,
            loss=BoundLoss(module, _generator(trial, "loss", trial.device)),
            optimizer=make_optimizer(recipe, [*model.parameters(), *module.parameters()]),
            batches=_generator(trial, "batches"),
        )

    @property
    def steps(self) -> int:
        """Steps of the whole training."""
        return self.recipe.epochs * math.ceil(len(self.dataset.train) / self.recipe.batch_size)

    def train_epoch(self) -> tuple[float, float]:
        """Train for one epoch; return the mean loss over its samples and the last learning rate.

        Raises:
            DivergedError: if that mean is not finite.
        """
        self.model.train()
        total = torch.zeros((), dtype=torch.float64, device=self.trial.device)
        rate = 0.0
        for inputs, labels in self._batches():
            rate = self._set_learning_rate()
            loss = self.loss(self.model(inputs), labels)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += loss.detach() * len(labels)
        mean = float(total) / len(self.dataset.train)
        if not math.isfinite(mean):
            raise DivergedError(f"the mean training loss is {mean}")
        return mean, rate

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        train = self.dataset.train
        order = torch.randperm(len(train), generator=self.batches).to(train.labels.device)
        for rows in torch.split(order, self.recipe.batch_size):
            yield train.inputs[rows], train.labels[rows]

    def _set_learning_rate(self) -> float:
        rate = learning_rate(self.recipe, self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.step += 1
        return rate

    @torch.no_grad()
    def evaluate(self, split: str) -> dict[str, float]:
        """Return the metrics on the ``"validation"`` or ``"test"`` split.

        Raises:
            DivergedError: if a score is not finite.
        """
        self.model.eval()
        data = getattr(self.dataset, split)
        parts = torch.split(data.inputs, _EVALUATION_BATCH)
        # Copies, for a network whose first layer works in place would change the data of every later trial.
        scores = torch.cat([self.model(part.clone()) for part in parts])
        if not bool(scores.isfinite().all()):
            raise DivergedError(f"a score on the {split} split is not finite")
        return evaluate(scores, data.labels, self.trial.topk)
