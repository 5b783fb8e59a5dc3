"""Groups of classes by their number of training samples: many-, medium- and few-shot."""

from __future__ import annotations

from torch import Tensor

from topk_platform.specs.checks import check

__all__ = ["shot_words", "shots"]

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
    """Return how many classes are many-, medium- and few-shot, and which group accuracies are empty for that reason.

    The accuracies of groups are measured only if the classes are in at least two groups, because the accuracy of a
    single group is the macro average.

    Args:
        class_counts: Training samples of each class after the regime's conditions, int64 ``(classes,)``.

    Example:
        >>> import torch
        >>> shot_words(torch.tensor([3, 4, 6]))
        'all classes are few-shot (below 20 samples), so no group has an accuracy of its own: macro_* covers them'
        >>> shot_words(torch.tensor([30, 4, 6]))
        '1 class is medium-shot (20 to 100 samples) and 2 classes are few-shot (below 20 samples), so many_* is empty'
    """
    sizes = {name: int(mask.sum()) for name, mask in shots(class_counts).items()}
    held = {name: size for name, size in sizes.items() if size}
    if len(held) == 1:
        name = next(iter(held))
        return (
            f"all classes are {name}-shot ({_BOUNDS[name]} samples), so no group has an accuracy of its own: "
            "macro_* covers them"
        )
    parts = [
        f"{size} {'class is' if size == 1 else 'classes are'} {name}-shot ({_BOUNDS[name]} samples)"
        for name, size in held.items()
    ]
    text = f"{', '.join(parts[:-1])} and {parts[-1]}"
    empty = [name for name, size in sizes.items() if not size]
    return f"{text}, so {empty[0]}_* is empty" if empty else text
