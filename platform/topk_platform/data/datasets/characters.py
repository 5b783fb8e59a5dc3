"""Characters that come with the package: handwritten digits; letters and Chinese characters of free typefaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.folders import arrays_in, data_folder
from topk_platform.errors import MissingDataError, UserError
from topk_platform.specs.checks import check

__all__ = ["LOOK_ALIKES", "digits", "kanji", "letters", "look_alikes"]

# The images and labels of scikit-learn, and the split of each image. The package has its own copy because importing
# scikit-learn takes every worker a second. A test compares it with scikit-learn's digits and its train_test_split.
_DIGITS = Path(__file__).with_name("digits.npz")


def digits() -> Dataset:
    """Return the 8×8 digits, float32 ``(n, 1, 8, 8)`` in ``[0, 1]``, in fixed stratified splits.

    The splits have 1,077, 360 and 360 images for training, validation and test. The superclasses are {0, ..., 4} and
    {5, ..., 9}.

    Source:
        E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998, as scikit-learn ships it.

    Example:
        >>> data = digits()
        >>> len(data.train), len(data.validation), len(data.test), data.shape
        (1077, 360, 360, (1, 8, 8))
    """
    arrays = arrays_in(_DIGITS)
    images, labels, splits = (arrays[name] for name in ("images", "labels", "split"))
    whole = Split(
        torch.from_numpy(images.astype(np.float32) / 16).unsqueeze(1),
        torch.from_numpy(labels.astype(np.int64)),
    )
    train, validation, test = (whole.take(torch.from_numpy(np.flatnonzero(splits == n))) for n in range(3))
    return Dataset(
        train, validation, test, classes=10, superclasses=(0,) * 5 + (1,) * 5, names=tuple("0123456789")
    )


_LETTERS = Path(__file__).with_name("letters.npz")
_LEVEL = 17  # the step between the 16 grey levels, so that the darkest is 255

LOOK_ALIKES = (
    "Oo0QD",
    "CcGe6",
    "Il1ij",
    "JtfTL",
    "Ss58B",
    "Zz27r",
    "VvYyUu",
    "WwMmN",
    "XxKkn",
    "PpRqg9",
    "Aa4Hh",
    "EF3bd",
)
"""Groups of characters that look alike, the superclasses of :func:`letters`. Each of the 62 characters is in one."""


def letters(file: str = "", exchanged: bool = False, superclasses: bool = True) -> Dataset:
    """Return 62 characters, uint8 ``(n, 1, 28, 28)``: A to Z, a to z and 0 to 9 of 360 free typefaces.

    Each character is cut out and scaled to fill the picture, like the input of a recogniser of single characters. So O,
    o and 0, or I, l and 1, differ little or not at all, and the right answer is a list of K guesses. The splits are by
    family, and similar or related families are in the same split: 150 for training, 50 for validation and 160 for test.
    Each family has one picture of every class. The group of each test picture is its typeface. The superclasses are
    :data:`LOOK_ALIKES`.

    Args:
        file: Another ``.npz`` of ``tools/make_letters.py``, in the data folder, in place of the file that comes with
            the package. If it has other characters, the dataset has no superclasses.
        exchanged: Whether the typefaces for training and for testing change their roles: 160 for training, 150 for
            test.
        superclasses: Whether the characters have superclasses. Without them, conditions draw wrong labels among all
            characters.

    Raises:
        MissingDataError: if there is no such file.
        UserError: if the file was not made by ``tools/make_letters.py``.

    Source:
        Typefaces of Debian's font packages; ``letters.csv`` beside this file has their designers and licences.

    Example:
        >>> data = letters()
        >>> len(data.train), len(data.validation), len(data.test), data.shape, data.classes
        (9300, 3100, 9920, (1, 28, 28), 62)
        >>> len(letters(exchanged=True).train), letters(superclasses=False).superclasses is None
        (9920, True)
    """
    path = data_folder(file) if file else _LETTERS
    if not path.is_file():
        raise MissingDataError(
            f"file must be an .npz of tools/make_letters.py in the data folder, but {path} does not exist"
        )
    packed, splits, names = _read(path)
    classes, size = len(names), packed.shape[2]
    pixels = torch.empty((*packed.shape[:2], 1, size, size), dtype=torch.uint8)
    pixels[..., 0::2], pixels[..., 1::2] = (
        torch.from_numpy(half * _LEVEL).unsqueeze(2) for half in (packed >> 4, packed & 15)
    )
    labels = torch.arange(classes)
    roles = (2, 1, 0) if exchanged else (0, 1, 2)
    train, validation, test = (
        Split(pixels[splits == n].flatten(0, 1), labels.repeat(int((splits == n).sum()))) for n in roles
    )
    test = test.grouped(torch.arange(len(test)) // classes)
    groups = _superclasses(names) if superclasses else None
    return Dataset(train, validation, test, classes, groups, names, groups="typefaces")


def _read(path: Path) -> tuple[np.ndarray, torch.Tensor, tuple[str, ...]]:
    """Return packed pictures ``(families, characters, size, size / 2)``, each family's split, and the characters."""
    try:
        archive = arrays_in(path)
        images, splits, characters = (archive[name] for name in ("images", "split", "characters"))
    except (OSError, LookupError) as error:
        raise UserError(f"file must be an .npz of tools/make_letters.py, got {path}: {error}") from error
    return images, torch.from_numpy(splits), tuple(map(str, characters))


def _superclasses(names: tuple[str, ...]) -> tuple[int, ...] | None:
    group_of = {character: group for group, alike in enumerate(LOOK_ALIKES) for character in alike}
    return tuple(group_of[name] for name in names) if set(names) == set(group_of) else None


_KANJI = Path(__file__).with_name("kanji.npz")
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
    whole = letters(file or str(_KANJI), exchanged)
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
