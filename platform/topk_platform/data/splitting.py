"""Fixed stratified splits, and groups of classes by their number of training samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import torch
from torch import Generator, Tensor

from topk_platform.errors import UserError
from topk_platform.specs.checks import check, first_few

__all__ = ["by_class", "held_out", "held_out_fraction", "shot_words", "shots", "stratified"]


def by_class(labels: Tensor, order: Tensor, classes: int) -> list[Tensor]:
    """Return each class's indices, in the order of ``order``.

    Args:
        labels: int64 ``(n,)``.
        order: Indices, int64.
        classes: Number of classes.

    Example:
        >>> [rows.tolist() for rows in by_class(torch.tensor([0, 1, 0]), torch.tensor([2, 1, 0]), 2)]
        [[2, 0], [1]]
    """
    ordered = labels[order]
    counts = torch.bincount(ordered, minlength=classes).tolist()
    return list(torch.split(order[ordered.argsort(stable=True)], counts))


def stratified(
    labels: Tensor, fractions: tuple[float, ...], generator: Generator, names: Sequence[str] | None = None
) -> list[Tensor]:
    """Return the indices of the training split, then those of each split taken from it, in ascending order.

    A split takes a random ``fraction · n`` of each class's n samples, rounded, and at least one.

    Args:
        labels: int64 ``(n,)``.
        fractions: The fraction of each split to take.
        generator: The source of randomness.
        names: The classes' names, for errors.

    Raises:
        UserError: if the fractions are negative or leave nothing, or a class has too few samples.

    Example:
        >>> labels = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])
        >>> train, validation = stratified(labels, (0.25,), Generator().manual_seed(0))
        >>> sorted(labels[train].tolist()), sorted(labels[validation].tolist())
        ([0, 0, 0, 1, 1, 1], [0, 1])
    """
    if min(fractions, default=0) < 0 or not sum(fractions) < 1:
        raise UserError(
            f"the fractions of validation and test must be at least 0 and below 1 in sum, got {fractions}"
        )
    return _split_classes(
        labels, lambda size: [max(1, round(fraction * size)) for fraction in fractions], generator, names
    )


def held_out(labels: Tensor, count: int, generator: Generator) -> list[Tensor]:
    """Return the indices of the training split, then those of ``count`` random samples of each class.

    Args:
        labels: int64 ``(n,)``.
        count: Samples of each class.
        generator: The source of randomness.

    Raises:
        UserError: if ``count`` is below 1, or a class has no more than ``count`` samples.

    Example:
        >>> labels = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])
        >>> train, validation = held_out(labels, 2, Generator().manual_seed(0))
        >>> sorted(labels[train].tolist()), sorted(labels[validation].tolist())
        ([0, 0, 1, 1], [0, 0, 1, 1])
    """
    if count < 1:
        raise UserError(f"the number of samples of each class to hold out must be at least 1, got {count}")
    return _split_classes(labels, lambda _: [count], generator)


def held_out_fraction(labels: Tensor, fraction: float, generator: Generator) -> list[Tensor]:
    """Return the indices of the training split, then those of a random fraction of each class.

    ``fraction · n`` of a class's n samples are taken, rounded, at least one and at most n - 1. So the only sample of a
    class stays in training.

    Args:
        labels: int64 ``(n,)``.
        fraction: The fraction of each class to take.
        generator: The source of randomness.

    Raises:
        UserError: if the fraction is not in ``(0, 1)``.

    Example:
        >>> labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 2])
        >>> train, validation = held_out_fraction(labels, 0.3, Generator().manual_seed(0))
        >>> sorted(labels[train].tolist()), sorted(labels[validation].tolist())
        ([0, 0, 0, 0, 1, 2], [0, 0, 1])
    """
    if not 0 < fraction < 1:
        raise UserError(f"the fraction of validation must be above 0 and below 1, got {fraction}")
    return _split_classes(labels, lambda size: [min(max(1, round(fraction * size)), size - 1)], generator)


def _split_classes(
    labels: Tensor,
    sizes_of: Callable[[int], list[int]],
    generator: Generator,
    names: Sequence[str] | None = None,
) -> list[Tensor]:
    shuffled = torch.randperm(len(labels), generator=generator)
    classes = int(labels.max()) + 1 if len(labels) else 0
    members = by_class(labels, shuffled, classes)
    _check_large_enough([len(rows) for rows in members], sizes_of, names)
    sizes = [(rows, sizes_of(len(rows))) for rows in members if len(rows)]
    parts = [torch.split(rows, [len(rows) - sum(taken), *taken]) for rows, taken in sizes]
    return [torch.cat(part).sort().values for part in zip(*parts, strict=True)]


def _check_large_enough(
    counts: list[int], sizes_of: Callable[[int], list[int]], names: Sequence[str] | None
) -> None:
    """Raise ``UserError`` if the splits leave a class no sample to train with; the message names such classes."""
    small = {label: size for label, size in enumerate(counts) if size and sum(sizes_of(size)) >= size}
    if not small:
        return
    least = next(size for size in count(1) if sum(sizes_of(size)) < size)
    named = [f"{label if names is None else repr(names[label])} has {size}" for label, size in small.items()]
    raise UserError(
        f"a class needs at least {least} samples to be split in {1 + len(sizes_of(least))}, and {len(small)} of "
        f"{len(counts)} have fewer: class {first_few(named)}. Add samples, leave such classes out, or "
        "give validation and test of your own"
    )


_BOUNDS = {"many": "above 100", "medium": "20 to 100", "few": "below 20"}


def shots(class_counts: Tensor, many: int = 100, few: int = 20) -> dict[str, Tensor]:
    """Return masks ``(classes,)`` of the many-, medium- and few-shot classes; each class is in exactly one.

    ``"many"`` holds the classes with more than ``many`` training samples, ``"few"`` those with fewer than
    ``few``, ``"medium"`` the rest. A group may be empty.

    Args:
        class_counts: Training samples of each class after the regime's conditions, int64 ``(classes,)``.
        many: The largest number of samples of a medium-shot class.
        few: The smallest number of samples of a medium-shot class.

    Raises:
        ValueError: if ``few`` is above ``many + 1``, so that a class could be in two groups.

    Example:
        >>> import torch
        >>> groups = shots(torch.tensor([500, 101, 100, 20, 19, 1]))
        >>> {name: mask.nonzero()[:, 0].tolist() for name, mask in groups.items()}
        {'many': [0, 1], 'medium': [2, 3], 'few': [4, 5]}
    """
    check(few <= many + 1, f"few must be at most many + 1 = {many + 1}, got {few!r}")
    return {
        "many": class_counts > many,
        "medium": (class_counts >= few) & (class_counts <= many),
        "few": class_counts < few,
    }


def shot_words(class_counts: Tensor) -> str:
    """Return how many classes are many-, medium- and few-shot.

    The accuracies of groups are measured only if the classes are in at least two groups, because the accuracy of a
    single group is the macro average.

    Args:
        class_counts: Training samples of each class after the regime's conditions, int64 ``(classes,)``.

    Example:
        >>> import torch
        >>> shot_words(torch.tensor([30, 4, 6]))
        'classes: 1 medium-shot (20 to 100 samples), 2 few-shot (below 20 samples)'
    """
    sizes = {name: int(mask.sum()) for name, mask in shots(class_counts).items()}
    named = [f"{size} {name}-shot ({_BOUNDS[name]} samples)" for name, size in sizes.items() if size]
    return f"classes: {', '.join(named)}"
