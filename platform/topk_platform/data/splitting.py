"""Fixed stratified splits."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from topk_platform.errors import UserError

__all__ = ["stratified"]


def stratified(labels: Tensor, fractions: tuple[float, ...], generator: Generator) -> list[Tensor]:
    """Return the indices of what is left for training, then those of each split taken from it, ascending.

    Of each class's n samples a split takes a random ``fraction · n``, rounded, and at least one.

    Args:
        labels: int64 ``(n,)``.
        fractions: Of each split to take.
        generator: The source of randomness.

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
    shuffled = torch.randperm(len(labels), generator=generator)
    parts: list[list[Tensor]] = [[] for _ in range(len(fractions) + 1)]
    for label in sorted(set(labels.tolist())):
        members = shuffled[labels[shuffled] == label]
        sizes = [max(1, round(fraction * len(members))) for fraction in fractions]
        left = len(members) - sum(sizes)
        if left < 1:
            raise UserError(f"class {label} has {len(members)} samples, too few for {len(parts)} splits")
        for part, piece in zip(parts, torch.split(members, [left, *sizes]), strict=True):
            part.append(piece)
    return [torch.cat(part).sort().values for part in parts]
