"""The parts of a study file that are about its data, and the code of values in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topk_platform.specs.checks import plural

__all__ = ["DataCode", "has_tail", "in_code", "what_can_be_seen"]

_DIFFERING = 0.16  # the share of test samples that one of two networks gets right and the other wrong
_SEEN = 2.8  # standard errors of a difference that has a chance of 80 % to be marked, two-sided at 5 %
_TAIL = 5  # the most frequent class has at least so many times as many samples as the rarest


@dataclass(frozen=True)
class DataCode:
    """The parts of a study file that are about its data.

    Args:
        title: The data in words.
        folder: The folder of datasets that contains them.
        classes: How many classes there are.
        network: A network that fits the data.
        dataset: The regime's dataset; ``{name}`` stands for the study's name.
        options: Its options.
        function: The code of a function that reads the data, if they need one.
        imports: The lines that import from other packages.
        names: The names that are imported from ``topk_platform``.
        augmentation: The code of the recipe's augmentation, if there is one.
        tested: The number of test samples.
        tail: Whether some classes have many times as many samples as others.
        summary: The numbers of classes and samples in a sentence.
        notes: Notes for the user about the data.
        few: Whether a frozen network is likely to do better, because there are few images.
    """

    title: str
    folder: Path
    classes: int
    network: str
    dataset: str
    options: Mapping[str, str | int] = field(default_factory=dict)
    function: str = ""
    imports: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    augmentation: str = ""
    tested: int = 0
    tail: bool = False
    summary: str = ""
    notes: tuple[str, ...] = ()
    few: bool = False

    def regime(self, name: str) -> str:
        """Return the code of the regime in the file of the study ``name``."""
        kind = "images" if self.network == "convnet" else "arrays"
        values = [f"{in_code(key)}: {in_code(value)}" for key, value in self.options.items()]
        options = f", options={{{', '.join(values)}}}" if values else ""
        return f'Regime("{kind}", {in_code(self.dataset)}{options})'.replace("{name}", name)


def has_tail(counts: Iterable[int]) -> bool:
    """Return whether the most frequent class has at least five times as many samples as the rarest.

    Args:
        counts: The samples of each class.
    """
    numbers = list(counts)
    return max(numbers, default=0) >= _TAIL * min(numbers, default=0) > 0


def what_can_be_seen(tested: int, *, grouped: bool = False) -> str:
    """Return how small a difference between two losses a study with so many test samples can show, in a sentence.

    Such a difference has a chance of 80 % to be marked at 5 %, if on one sample in six one of two networks is right and
    the other wrong, as is usual, and searches and seeds vary little.

    Args:
        tested: The number of test samples.
        grouped: Whether samples come in groups that are alike, so that they say less than as many single ones.

    Example:
        >>> what_can_be_seen(175)
        'with 175 test samples a difference of about 9 points can be seen; about 1,400 would show 3'
        >>> what_can_be_seen(2000, grouped=True).partition(". ")[2]
        'Samples come in groups, which show less than as many single ones'
    """
    points = math.ceil(100 * _SEEN * math.sqrt(_DIFFERING / tested))
    text = f"with {tested:,} test samples a difference of about {plural(points, 'point')} can be seen"
    text += "; about 1,400 would show 3" if points > 3 else ""
    return f"{text}. Samples come in groups, which show less than as many single ones" if grouped else text


def in_code(value: Any) -> str:
    """Return a text or a number as Python's code, in double quotes as the rest of the file.

    JSON's escapes of letters are not used: JSON writes an emoji as two, which Python takes for two letters.
    """
    return json.dumps(value, ensure_ascii=False)
