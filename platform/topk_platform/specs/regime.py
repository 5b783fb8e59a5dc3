"""A dataset and what is done to its training split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topk_platform.specs.checks import check, check_name
from topk_platform.specs.space import Scalar

__all__ = ["Condition", "LabelNoise", "LongTail", "PerClass", "Regime", "TrainFraction"]


@dataclass(frozen=True)
class LabelNoise:
    """Replace each training label, with this probability, by a random one of its superclass.

    The new label may equal the old one. Drawn once per seed; validation and test are never touched.

    Args:
        probability: In ``[0, 1]``.
    """

    probability: float

    def __post_init__(self) -> None:
        check(
            0 <= self.probability <= 1, f"LabelNoise.probability must be in [0, 1], got {self.probability!r}"
        )


@dataclass(frozen=True)
class LongTail:
    """Thin the training classes exponentially: class c keeps ``n · ratio^(-c / (C - 1))`` of its images.

    Args:
        ratio: Largest over smallest class count, at least 1.
    """

    ratio: float

    def __post_init__(self) -> None:
        check(self.ratio >= 1, f"LongTail.ratio must be at least 1, got {self.ratio!r}")


@dataclass(frozen=True)
class TrainFraction:
    """Train on a part of each class's images, as large as its share of the whole; at least one of each.

    With the same seed a smaller fraction's images are among a larger one's.

    Args:
        fraction: In ``(0, 1]``.
    """

    fraction: float

    def __post_init__(self) -> None:
        check(0 < self.fraction <= 1, f"TrainFraction.fraction must be in (0, 1], got {self.fraction!r}")


@dataclass(frozen=True)
class PerClass:
    """Train on as many images of each class, of those that have fewer on all; balanced, unlike TrainFraction.

    With the same seed a smaller subset's images are among a larger one's.

    Args:
        samples: Of each class, at least 1.
    """

    samples: int

    def __post_init__(self) -> None:
        check(self.samples >= 1, f"PerClass.samples must be at least 1, got {self.samples!r}")


Condition = LabelNoise | LongTail | PerClass | TrainFraction


@dataclass(frozen=True)
class Regime:
    """A dataset under conditions.

    Args:
        name: What tables call it.
        dataset: A name in the platform's table, or ``package.module:attribute`` of your own function. One that
            has a parameter ``generator`` draws fresh data for every seed.
        conditions: Applied to the training split, in order.
        options: Keyword arguments of the dataset's function.
    """

    name: str
    dataset: str
    conditions: tuple[Condition, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("regime name", self.name)
        object.__setattr__(self, "conditions", tuple(self.conditions))
