"""Everything that a trial trains with, built from its spec alone."""

from __future__ import annotations

from functools import partial

import torch
from torch import Generator, nn

from topk_platform.data import Dataset, Images, apply_conditions, load
from topk_platform.errors import ChangedError
from topk_platform.models import build_model
from topk_platform.specs import Inputs, Recipe, Schedule, Trial, numbers
from topk_platform.specs.codec import stream_seed
from topk_platform.training.losses import BoundLoss, build_loss
from topk_platform.training.steps.batches import Batches, Normalisation
from topk_platform.training.steps.optim import effective_weights

__all__ = ["batches_of", "dataset_of", "generator_of", "initialised", "inputs_of", "loss_of"]


def inputs_of(dataset: Dataset, normalisation: Normalisation | None) -> Inputs:
    """Return the description of the inputs of a network that was trained on a dataset with a normalisation."""
    images = dataset.train.inputs
    return Inputs(
        shape=dataset.shape,
        classes=dataset.classes,
        kind="tensor" if normalisation is None else "image",
        names=dataset.class_names,
        mean=() if normalisation is None else normalisation.mean,
        std=() if normalisation is None else normalisation.std,
        resize=images.resize if isinstance(images, Images) else 0,
    )


def generator_of(trial: Trial, role: str, device: str = "cpu") -> Generator:
    """Return a trial's random stream for a role, such as ``"batches"``."""
    return Generator(device).manual_seed(stream_seed(trial.root, trial.seed, role))


def dataset_of(trial: Trial) -> Dataset:
    """Return the trial's data on the CPU, with its conditions applied.

    Raises:
        ChangedError: if the data differ from those that the trial was planned with.
    """
    source = load(trial.arm.regime)
    if source.fingerprint != trial.dataset_fingerprint:
        raise ChangedError(
            f"dataset {trial.arm.regime.dataset} has fingerprint {source.fingerprint}, "
            f"the trial was planned with {trial.dataset_fingerprint}: either the data have changed, or the dataset's "
            "function returns other data in every process, because its module draws random numbers without a seed when "
            "it is imported, or because it depends on the order of a set"
        )
    return apply_conditions(source, trial.arm.regime.conditions, partial(generator_of, trial))


def initialised(trial: Trial, dataset: Dataset) -> nn.Module:
    """Return the trial's network with its initial weights, on the CPU."""
    # torch's layers initialise from the global generator: set it to this trial's stream, then restore it.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(trial.root, trial.seed, "initialisation"))
        return build_model(trial.arm.model, dataset.shape, dataset.classes, trial.arm.loss.head)


def loss_of(trial: Trial, dataset: Dataset) -> BoundLoss:
    """Return the trial's loss on its device, with its own random stream."""
    arm, own, counts = trial.arm, trial.setting.own, dataset.class_counts

    def in_epoch(epoch: int) -> nn.Module:
        given = numbers(own, epoch, arm.recipe.epochs)
        return build_loss(arm.loss, given, arm.k, counts).to(trial.device)

    changes = any(isinstance(value, Schedule) for value in own.values())
    weights = None if arm.recipe.reweighting is None else effective_weights(counts).to(trial.device)
    generator = generator_of(trial, "loss", trial.device)
    given = in_epoch(0), generator, weights, in_epoch if changes else None
    return BoundLoss(*given, remembers=arm.loss.remembers)


def batches_of(
    trial: Trial, recipe: Recipe, dataset: Dataset, normalisation: Normalisation | None
) -> Batches:
    """Return the training split's batches; the dataset must be on the trial's device."""
    return Batches(
        split=dataset.train,
        classes=dataset.classes,
        size=recipe.batch_size,
        augmentation=recipe.augmentation,
        normalisation=normalisation,
        order=generator_of(trial, "batches"),
        changes=generator_of(trial, "augmentation", trial.device),
        channels_last=recipe.numerics.channels_last,
    )
