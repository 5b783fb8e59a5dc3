"""The conditions of a regime, which change the training split of its dataset.

Functions in :mod:`topk_platform.data.conditions` apply the conditions to a dataset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, get_args

from topk_platform.specs.fields import Checked, Count, Part, Rule, Share

__all__ = [
    "ConfusionNoise",
    "LabelNoise",
    "LongTail",
    "NoisyLabels",
    "PerClass",
    "TrainFraction",
]


class _Condition(Checked):
    across_superclasses: ClassVar[bool] = False
    """Whether it may give a sample a label of another superclass, which contracts check."""


@dataclass(frozen=True)
class LabelNoise(_Condition):
    """Replace each training label, with this probability, by a random one of its superclass.

    The new label may equal the old one. Labels are drawn once per seed. Validation and test are never changed.

    Args:
        probability: In ``[0, 1]``.
    """

    probability: Share


@dataclass(frozen=True)
class LongTail(_Condition):
    """Thin the training classes exponentially: class c keeps ``n · ratio^(-c / (C - 1))`` of its images.

    Args:
        ratio: Largest class count over the smallest, at least 1.
    """

    ratio: Annotated[float, Rule("at least 1", lambda value: value >= 1)]


@dataclass(frozen=True)
class TrainFraction(_Condition):
    """Train on the same fraction of each class's images; at least one image of each class.

    With the same seed, a smaller fraction's images are a subset of a larger one's.

    Args:
        fraction: In ``(0, 1]``.
        whole_groups: Whether to keep this fraction of the groups, each with all its images, in place of images of each
            class. The dataset must name the groups of its training images.
    """

    fraction: Part
    whole_groups: bool = False


@dataclass(frozen=True)
class PerClass(_Condition):
    """Train on this many images of each class, or on all images of a smaller class; balanced, unlike TrainFraction.

    With the same seed, a smaller subset's images are a subset of a larger one's.

    Args:
        samples: Images per class, at least 1.
        whole_groups: Whether to take one group after another, so that the images come from as few groups as possible,
            which are the same for all classes. The dataset must name the groups of its training images.
    """

    samples: Count
    whole_groups: bool = False


_File = Annotated[str, Rule("the name of a file in the data folder", lambda value: bool(value.strip()))]


@dataclass(frozen=True)
class ConfusionNoise(_Condition):
    """Replace training labels by labels drawn from a confusion matrix, such as that of people who labelled the images.

    Args:
        file: A CSV file in the data folder. A row belongs to a true class, a column to a label. The numbers are counts,
            or shares that sum to 1 in each row. If the first cell is not a number, the first line and the first column
            are the classes' names, in any order; otherwise the rows are in the order of the classes.
        probability: The share of labels that are drawn from the matrix; the others stay. If the matrix's diagonal is
            large, most of the drawn labels equal the old ones.
    """

    across_superclasses = True

    file: _File
    probability: Share = 1.0


@dataclass(frozen=True)
class NoisyLabels(_Condition):
    """Train with the labels of a file, such as one that people gave to each image; the same for all seeds.

    Args:
        file: An ``.npz`` file in the data folder, which :func:`topk_platform.data.write_labels` writes: an array
            ``label`` and, unless it is in the order of the training samples, an array ``sample`` with the training
            sample of each label. Training samples that are not in the file keep their labels.
    """

    across_superclasses = True

    file: _File


Noise = LabelNoise | ConfusionNoise | NoisyLabels
"""The conditions that change labels."""

Condition = Noise | TrainFraction | LongTail | PerClass
"""All conditions."""

CONDITIONS: tuple[type[Condition], ...] = get_args(Condition)
