"""A dataset and what is done to its training split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from topk_platform.references import reference_of
from topk_platform.specs.arms.noise import ConfusionNoise, InstanceNoise, NoisyLabels, PairFlip
from topk_platform.specs.checks import check_name
from topk_platform.specs.codec import LATER
from topk_platform.specs.fields import Count, Part, Rule, Share, check_fields
from topk_platform.specs.search.space import Scalar

__all__ = ["Condition", "LabelNoise", "LongTail", "Noise", "PerClass", "Regime", "TrainFraction"]


@dataclass(frozen=True)
class LabelNoise:
    """Replace each training label, with this probability, by a random one of its superclass.

    The new label may equal the old one. Drawn once per seed; validation and test are never touched.

    Where classes have few images, all images of a class may get other labels and no image its label. No network can
    learn such a class, whatever its loss; its test images count as errors. Losses that take class counts (LDAM,
    balanced softmax, logit adjustment, vector scaling, the imbalanced noised hinge) take 1 for its 0, as deferred class
    weights do: whoever trains on noisy labels counts those labels, and an offset of log 0 would remove the class from
    the softmax. ``topk plan``, ``topk doctor`` and ``topk run`` name the classes that the search's draw empties.

    Args:
        probability: In ``[0, 1]``.
    """

    probability: Share

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class LongTail:
    """Thin the training classes exponentially: class c keeps ``n · ratio^(-c / (C - 1))`` of its images.

    Args:
        ratio: Largest class count over the smallest, at least 1.
    """

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
            class; the dataset must name the groups of its training images.
    """

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
            which are the same for all classes; the dataset must name the groups of its training images.
    """

    samples: Count
    whole_groups: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check_fields(self)


Noise = ConfusionNoise | InstanceNoise | LabelNoise | NoisyLabels | PairFlip
Condition = LongTail | Noise | PerClass | TrainFraction


@dataclass(frozen=True)
class Regime:
    """A dataset under conditions.

    Args:
        name: What tables call it.
        dataset: A name in the platform's table, or ``package.module:attribute`` of your own function, or the function
            itself, where every process can import it; the dataset is then its reference. One that has a parameter
            ``generator`` draws fresh data for every seed.
        conditions: Applied to the training split, in order.
        options: Keyword arguments of the dataset's function.
    """

    name: str
    dataset: str
    conditions: tuple[Condition, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", reference_of("dataset", self.dataset))
        check_fields(self)
        check_name("regime name", self.name)
