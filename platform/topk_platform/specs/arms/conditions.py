"""The conditions of a regime: what is done to the training split of its dataset.

Each condition is a frozen dataclass whose first field is its strength. Its class also says what plots and
recommendations need: the title of the strength on an axis, the strength that changes nothing, and whether it replaces
labels. How it changes a dataset is a function in :mod:`topk_platform.data.conditions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, ClassVar, get_args

from topk_platform.specs.codec import LATER
from topk_platform.specs.fields import Count, Part, Rule, Share, check_fields

__all__ = ["LabelNoise", "LongTail", "PerClass", "TrainFraction"]


@dataclass(frozen=True)
class LabelNoise:
    """Replace each training label, with this probability, by a random one of its superclass.

    The new label may equal the old one. Labels are drawn once per seed. Validation and test are never changed.

    Args:
        probability: In ``[0, 1]``.
    """

    axis: ClassVar[str] = "label noise, probability"
    neutral: ClassVar[float | None] = 0.0
    replaces_labels: ClassVar[bool] = True

    probability: Share

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class LongTail:
    """Thin the training classes exponentially: class c keeps ``n · ratio^(-c / (C - 1))`` of its images.

    Args:
        ratio: Largest class count over the smallest, at least 1.
    """

    axis: ClassVar[str] = "imbalance, largest over smallest class"
    neutral: ClassVar[float | None] = 1.0
    replaces_labels: ClassVar[bool] = False

    ratio: Annotated[float, Rule("at least 1", lambda value: value >= 1)]

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class TrainFraction:
    """Train on the same fraction of each class's images; at least one image of each class.

    With the same seed, a smaller fraction's images are a subset of a larger one's.

    Args:
        fraction: In ``(0, 1]``.
        whole_groups: Whether to keep this fraction of the groups, each with all its images, in place of images of each
            class. The dataset must name the groups of its training images.
    """

    axis: ClassVar[str] = "fraction of the training data"
    neutral: ClassVar[float | None] = 1.0
    replaces_labels: ClassVar[bool] = False

    fraction: Part
    whole_groups: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class PerClass:
    """Train on this many images of each class, or on all images of a smaller class; balanced, unlike TrainFraction.

    With the same seed, a smaller subset's images are a subset of a larger one's.

    Args:
        samples: Images per class, at least 1.
        whole_groups: Whether to take one group after another, so that the images come from as few groups as possible,
            which are the same for all classes. The dataset must name the groups of its training images.
    """

    axis: ClassVar[str] = "training samples per class"
    neutral: ClassVar[float | None] = None
    replaces_labels: ClassVar[bool] = False

    samples: Count
    whole_groups: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check_fields(self)


Condition = LabelNoise | TrainFraction | LongTail | PerClass
"""All conditions. Where regimes differ by several, plots take the first of them as their horizontal axis."""

CONDITIONS: tuple[type[Condition], ...] = get_args(Condition)


def strength(condition: Condition) -> float:
    """Return a condition's strength, its first field.

    Example:
        >>> strength(LongTail(20))
        20.0
    """
    return float(getattr(condition, fields(condition)[0].name))
