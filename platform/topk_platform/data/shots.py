"""Groups of classes by their number of training samples."""

from __future__ import annotations

from torch import Tensor

from topk_platform.specs.checks import check

__all__ = ["shots"]


def shots(class_counts: Tensor, many: int = 100, few: int = 20) -> dict[str, Tensor]:
    """Return masks ``(classes,)`` of the many-, medium- and few-shot classes; each class is in exactly one.

    ``"many"`` holds the classes with more than ``many`` training samples, ``"few"`` those with fewer than
    ``few``, ``"medium"`` the rest. A group may be empty.

    Args:
        class_counts: Training samples of each class, int64 ``(classes,)``: after the regime's conditions.
        many: The most samples of a medium-shot class.
        few: The fewest samples of a medium-shot class.

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
