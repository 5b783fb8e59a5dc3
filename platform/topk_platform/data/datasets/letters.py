"""Images of letters and digits in free typefaces, part of the package; many look alike, so K guesses make sense."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.folder import data_folder
from topk_platform.errors import MissingDataError, UserError

__all__ = ["LOOK_ALIKES", "letters"]

_FILE = Path(__file__).with_name("letters.npz")
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
    path = data_folder(file) if file else _FILE
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
        with np.load(path, allow_pickle=False) as archive:
            images, splits, characters = (archive[name] for name in ("images", "split", "characters"))
    except (ValueError, LookupError, TypeError, OSError, EOFError, BadZipFile) as error:
        raise UserError(f"file must be an .npz of tools/make_letters.py, got {path}: {error}") from error
    return images, torch.from_numpy(splits), tuple(map(str, characters))


def _superclasses(names: tuple[str, ...]) -> tuple[int, ...] | None:
    group_of = {character: group for group, alike in enumerate(LOOK_ALIKES) for character in alike}
    return tuple(group_of[name] for name in names) if set(names) == set(group_of) else None
