"""Images of Chinese characters in free Japanese typefaces, part of the package: thousands of classes."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.datasets.letters import letters
from topk_platform.specs.checks import check

__all__ = ["kanji", "look_alikes"]

_FILE = Path(__file__).with_name("kanji.npz")
_ALIKE = 5  # characters of a superclass
_POOLED = 2  # pixels


def kanji(classes: int = 2965, file: str = "", exchanged: bool = False) -> Dataset:
    """Return up to 2,965 characters, uint8 ``(n, 1, 28, 28)``: JIS X 0208's first level in 35 free typefaces.

    The classes are ordered by how often they are used, the most frequent first, so ``classes=1006`` takes the 1,006
    most frequent, and on a long tail the frequent characters have the most images. Each character is scaled to fill
    its picture. The splits are by family, and similar or related families are in the same split: 16 for training, 6
    for validation and 13 for test. Each family has one picture of every class. The group of each picture is its
    typeface. The superclasses are groups of five look-alikes, see :func:`look_alikes`.

    Args:
        classes: How many of the characters, from the most frequent on.
        file: Another ``.npz`` of ``tools/make_letters.py``, in the data folder, in place of the file that comes with
            the package.
        exchanged: Whether the typefaces for training and for testing change their roles: 13 for training, 16 for
            test.

    Raises:
        MissingDataError: if there is no such file.
        UserError: if the file was not made by ``tools/make_letters.py``, or ``classes`` is below 5 or above the file's
            number of characters.

    Source:
        Typefaces of Debian's and npm's font packages; ``kanji.csv`` beside this file has their designers and licences.
        The order is that of *Kanji usage frequency* by Dmitry Shpika (CC BY 4.0), counted on Wikipedia.

    Example:
        >>> data = kanji(classes=62)
        >>> len(data.train), len(data.validation), len(data.test), data.shape, "".join(data.names[:5])
        (992, 372, 806, (1, 28, 28), '年日月大学')
    """
    whole = letters(file or str(_FILE), exchanged)
    check(_ALIKE <= classes <= whole.classes, f"classes must be {_ALIKE} to {whole.classes}, got {classes!r}")
    train, validation, test = (_first(split, classes, whole.classes) for split in whole.splits.values())
    names = (whole.names or ())[:classes]
    superclasses = look_alikes(train.tensor.reshape(-1, classes, *train.tensor.shape[1:]))
    return Dataset(train, validation, test, classes, superclasses, names, groups="typefaces")


def _first(split: Split, classes: int, known: int) -> Split:
    """Return the first classes of a split. The split has one typeface after another, each with all known classes."""
    taken = split.take((split.labels < classes).nonzero()[:, 0])
    return taken.grouped(torch.arange(len(split)).floor_divide(known)[split.labels < classes])


def look_alikes(pictures: Tensor) -> tuple[int, ...]:
    """Return the group of each class: five classes whose mean pictures are close to one another.

    A group consists of a class and the four nearest classes that are not in a group yet. The first groups are those of
    the classes with the nearest neighbours. Up to four classes that are left over join the groups of their nearest
    neighbours. All sums are of whole numbers, so the groups are the same on every machine.

    Args:
        pictures: uint8 ``(typefaces, classes, 1, height, width)``, height and width even.
    """
    apart = _distances(pictures).fill_diagonal_(torch.inf)
    order = apart.amin(1).argsort(stable=True).tolist()
    groups = torch.full((len(apart),), -1)
    free = torch.ones(len(apart), dtype=torch.bool)
    for number in range(len(apart) // _ALIKE):
        first = next(c for c in order if free[c])
        nearest = torch.where(free, apart[first], torch.inf).argsort(stable=True)
        members = torch.cat([torch.tensor([first]), nearest[: _ALIKE - 1]])
        groups[members], free[members] = number, False
    for left in free.nonzero()[:, 0].tolist():
        groups[left] = groups[torch.where(free, torch.inf, apart[left]).argmin()]
    return tuple(groups.tolist())


def _distances(pictures: Tensor) -> Tensor:
    """Return squared distances between the classes' mean pictures at half the size, whole numbers in float64."""
    typefaces, classes, _, height, width = pictures.shape
    cells = pictures.reshape(typefaces, classes, height // _POOLED, _POOLED, width // _POOLED, _POOLED)
    means = cells.sum((0, 3, 5), dtype=torch.int64).flatten(1).double()
    squares = (means**2).sum(1)
    apart: Tensor = squares[:, None] + squares - 2 * means @ means.T
    return apart
