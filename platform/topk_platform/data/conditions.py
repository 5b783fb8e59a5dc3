"""Conditions of a regime, applied to the training split only, and samples set aside from the validation split."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Generator, Tensor

from topk_platform.data.dataset import Dataset
from topk_platform.data.folders import data_folder
from topk_platform.data.population import Population, Source
from topk_platform.data.splitting import by_class
from topk_platform.data.wrong_labels import confused_labels, read_confusion, read_labels
from topk_platform.errors import UserError
from topk_platform.specs import (
    Condition,
    ConfusionNoise,
    LabelNoise,
    LongTail,
    NoisyLabels,
    PerClass,
    TrainFraction,
)
from topk_platform.specs.checks import first_few

__all__ = ["apply_conditions", "conditioned", "long_tail_counts", "noisy_labels"]


def noisy_labels(labels: Tensor, superclasses: Tensor, probability: float, generator: Generator) -> Tensor:
    """Return the labels, each replaced with ``probability`` by a random label of its superclass.

    The new label is uniform over the superclass and may equal the old one.

    Args:
        labels: int64 ``(n,)``.
        superclasses: The superclass of each class, int64 ``(classes,)``.
        probability: In ``[0, 1]``.
        generator: The source of randomness.
    """
    superclasses = torch.unique(superclasses, return_inverse=True)[1]  # numbered from 0 without gaps
    order = torch.argsort(superclasses, stable=True)
    sizes = torch.bincount(superclasses)
    first = torch.cumsum(sizes, 0) - sizes
    group = superclasses[labels]
    draw = torch.rand(len(labels), generator=generator, dtype=torch.float64)
    drawn = order[first[group] + (draw * sizes[group]).long()]
    replaced = torch.rand(len(labels), generator=generator, dtype=torch.float64) < probability
    return torch.where(replaced, drawn, labels)


def long_tail_counts(counts: Tensor, ratio: float) -> Tensor:
    """Return the class counts of an exponential long tail.

    Class c keeps ``n · ratio^(-c / (C - 1))`` samples, rounded, and at least one; n is the smallest of ``counts``.

    Args:
        counts: The number of available samples of each class, int64 ``(C,)``.
        ratio: The largest count divided by the smallest.

    Example:
        >>> long_tail_counts(torch.tensor([100, 120, 100]), 25).tolist()
        [100, 20, 4]
    """
    position = torch.arange(len(counts), dtype=torch.float64) / max(len(counts) - 1, 1)
    return (counts.min() * ratio**-position).round().long().clamp(min=1)


def _label_noise(dataset: Dataset, condition: LabelNoise, generator: Generator) -> Dataset:
    superclasses = torch.tensor(dataset.superclasses or (0,) * dataset.classes)
    labels = noisy_labels(dataset.train.labels, superclasses, condition.probability, generator)
    return dataset.with_train(dataset.train.relabelled(labels))


def _confusion_noise(dataset: Dataset, condition: ConfusionNoise, generator: Generator) -> Dataset:
    matrix = read_confusion(data_folder(condition.file), dataset.classes, dataset.class_names)
    labels = confused_labels(dataset.train.labels, matrix, condition.probability, generator)
    return dataset.with_train(dataset.train.relabelled(labels))


def _noisy_labels(dataset: Dataset, condition: NoisyLabels, generator: Generator) -> Dataset:
    del generator  # the file's labels are the same for all seeds
    labels = read_labels(data_folder(condition.file), dataset)
    return dataset.with_train(dataset.train.relabelled(labels))


def _thinned(dataset: Dataset, counts: Tensor, generator: Generator, whole_groups: bool = False) -> Dataset:
    """Keep ``counts`` random training samples per class. With the same seed, a smaller subset is part of a larger one.

    With ``whole_groups``, the groups are in a random order, and the samples of the first groups are kept.
    """
    shuffled = torch.randperm(len(dataset.train), generator=generator)
    if whole_groups:
        position = _group_order(dataset, generator)[_groups_of(dataset)]
        shuffled = shuffled[position[shuffled].argsort(stable=True)]
    members = by_class(dataset.train.labels, shuffled, dataset.classes)
    kept = [rows[: int(n)] for rows, n in zip(members, counts, strict=True)]
    return dataset.with_train(dataset.train.take(torch.cat(kept).sort().values))


def _long_tail(dataset: Dataset, condition: LongTail, generator: Generator) -> Dataset:
    empty = (dataset.class_counts == 0).nonzero()[:, 0].tolist()
    if empty:  # the largest class has as many samples as the smallest has now
        raise UserError(
            f"LongTail({condition.ratio:g}) needs a training sample of each class, got none of: "
            f"{first_few([str(label) for label in empty])}"
        )
    return _thinned(dataset, long_tail_counts(dataset.class_counts, condition.ratio), generator)


def _groups_of(dataset: Dataset) -> Tensor:
    """Return the groups of the training samples, numbered without gaps."""
    groups = dataset.train.groups
    if groups is None:
        raise UserError("a condition with whole_groups needs groups, but the training split has none")
    numbers: Tensor = torch.unique(groups, return_inverse=True)[1]
    return numbers


def _group_order(dataset: Dataset, generator: Generator) -> Tensor:
    """Return each group's position in a random order of the groups."""
    return torch.randperm(int(_groups_of(dataset).max()) + 1, generator=generator)


def _fraction_of_groups(dataset: Dataset, fraction: float, generator: Generator) -> Dataset:
    position = _group_order(dataset, generator)
    kept = position[_groups_of(dataset)] < max(1, round(fraction * len(position)))
    thinned = dataset.with_train(dataset.train.take(kept.nonzero()[:, 0]))
    lost = ((dataset.class_counts > 0) & (thinned.class_counts == 0)).nonzero()[:, 0].tolist()
    if lost:
        raise UserError(
            f"TrainFraction({fraction}, whole_groups=True) leaves {len(lost)} classes without a training image: "
            f"{first_few([str(label) for label in lost])}. Take a larger fraction, or whole_groups=False"
        )
    return thinned


def _train_fraction(dataset: Dataset, condition: TrainFraction, generator: Generator) -> Dataset:
    if condition.whole_groups:
        return _fraction_of_groups(dataset, condition.fraction, generator)
    counts = (dataset.class_counts.double() * condition.fraction).round().long().clamp(min=1)
    return _thinned(dataset, counts, generator)


def _per_class(dataset: Dataset, condition: PerClass, generator: Generator) -> Dataset:
    counts = torch.full((dataset.classes,), condition.samples)
    return _thinned(dataset, counts, generator, condition.whole_groups)


_CONDITIONS: dict[type, Callable[..., Dataset]] = {
    ConfusionNoise: _confusion_noise,
    LabelNoise: _label_noise,
    LongTail: _long_tail,
    NoisyLabels: _noisy_labels,
    PerClass: _per_class,
    TrainFraction: _train_fraction,
}


def apply_conditions(
    source: Source, conditions: Iterable[Condition], generator: Callable[[str], Generator]
) -> Dataset:
    """Return the data that one seed trains on: a sample of a population, or the dataset, changed by each condition.

    Conditions apply in their order and change only the training split. Label noise stays within the superclasses, or
    spans all classes if the dataset has no superclasses.

    Args:
        source: The dataset on the CPU, or the population to draw it from.
        conditions: The conditions to apply.
        generator: Returns the random stream of a role; the population and each condition have streams of their own.

    Raises:
        MissingDataError: if a condition's file does not exist.
        UserError: if a condition with whole groups finds no groups in the training split or leaves a class without a
            sample, or a condition's file does not fit the dataset.
    """
    dataset = source.sample(generator("dataset")) if isinstance(source, Population) else source
    for index, condition in enumerate(conditions):
        kind = type(condition)
        dataset = _CONDITIONS[kind](dataset, condition, generator(f"condition.{index}.{kind.__name__}"))
    return dataset


def conditioned(
    source: Source, conditions: Iterable[Condition], generator: Callable[[str], Generator]
) -> tuple[Dataset, float]:
    """Return a dataset with its conditions, and the share of training labels that they changed.

    The names of its training samples are their labels before the conditions.

    Example:
        >>> from topk_platform.data import digits
        >>> conditioned(digits(), [LabelNoise(0.0)], lambda role: Generator())[1]
        0.0
    """
    dataset = source.sample(generator("dataset")) if isinstance(source, Population) else source
    first = tuple(map(str, dataset.train.labels.tolist()))  # names go with their samples and change no result
    changed = apply_conditions(dataset.with_train(replace(dataset.train, names=first)), conditions, generator)
    before = torch.tensor(list(map(int, changed.train.names)))
    return changed, float((changed.train.labels != before).double().mean())
