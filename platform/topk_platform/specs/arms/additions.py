"""What a recipe may add to the usual training: averaged weights, augmentation policies, and steps after training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from topk_platform.specs.fields import Count, NonNegative, Rule, check_fields

__all__ = [
    "EMA",
    "SWA",
    "LogitAdjustment",
    "RandAugment",
    "RetrainedClassifier",
    "TauNormalised",
    "TrivialAugment",
]

_Below1 = Annotated[float, Rule("in [0, 1)", lambda value: 0 <= value < 1)]
_Magnitude = Annotated[int, Rule("in 0 ... 30", lambda value: 0 <= value <= 30)]


@dataclass(frozen=True)
class EMA:
    """Evaluate, keep and export an exponential moving average of the weights: ``a ← d a + (1 - d) w`` after every step.

    Step t, from 1, has ``d = min(decay, t / (t + 9))``, so that the average soon forgets the initial weights. Running
    statistics of batch normalisation are averaged likewise; what is a whole number is copied.

    Args:
        decay: In ``[0, 1)``; 0 is no averaging.

    Source:
        Polyak and Juditsky, SIAM J. Control Optim. 1992; the rising decay is that of TensorFlow's
        ``ExponentialMovingAverage``, ``(1 + n) / (10 + n)`` after n earlier steps.
    """

    decay: _Below1 = 0.999

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class SWA:
    """Evaluate, keep and export the mean of the weights at the ends of the last epochs.

    From ``start`` on the learning rate stays what it is there. The running statistics of batch normalisation are
    computed anew for the mean weights, by a pass over the training samples without augmentation. Before the first epoch
    end after ``start`` the weights are those of usual training.

    Args:
        start: The share of all epochs after which averaging begins, in ``[0, 1)``.

    Source:
        Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, UAI 2018.
    """

    start: _Below1 = 0.75

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class RandAugment:
    """Change each image by ``operations`` random operations of one strength, on the device.

    The operations, and what a magnitude means for each, are torchvision's ``RandAugment`` with 31 bins; what moves into
    view is black.

    Args:
        operations: How many, one after another, each drawn anew with equal probability.
        magnitude: Their strength, a whole number in ``[0, 30]``.

    Source:
        Cubuk et al., RandAugment, NeurIPS 2020.
    """

    operations: Count = 2
    magnitude: _Magnitude = 9

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class TrivialAugment:
    """Change each image by one random operation of a random strength, on the device.

    The operations and their strengths are torchvision's ``TrivialAugmentWide`` with 31 bins; what moves into view is
    black.

    Source:
        Müller and Hutter, TrivialAugment, ICCV 2021.
    """


@dataclass(frozen=True)
class LogitAdjustment:
    """After training, subtract ``τ log π_c`` from the score of each class c, π_c its share of the training samples.

    Validation and test are scored with the adjusted network, so that τ can be searched on validation, as
    ``after_tau``. The offsets go into the bias of the network's last layer.

    Args:
        tau: τ, at least 0; 0 leaves the scores as they are.

    Source:
        Menon et al., Long-tail Learning via Logit Adjustment, ICLR 2021, equation 9.
    """

    tau: NonNegative = 1.0

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class TauNormalised:
    """After training, divide the weights of each class in the last layer by their norm to the power τ; its bias is 0.

    Validation and test are scored so, and τ can be searched on validation, as ``after_tau``. The paper's definition,
    ``w / |w|^τ``, has no value for weights that are all 0 (for a class that never had a sample, say). They stay 0: the
    class scores 0 on every image before and after, and for τ < 1 this is the limit of ``w / |w|^τ`` as w goes to 0.

    Args:
        tau: τ, at least 0.

    Source:
        Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, ICLR 2020, 4.
    """

    tau: NonNegative = 1.0

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class RetrainedClassifier:
    """Train the last layer anew in the last epochs, on batches in which all classes are equally frequent (cRT).

    The other layers stay as the first stage left them. Each stage has the recipe's schedule over its own epochs, and
    together they have the recipe's epochs, so that the budget stays that of the other arms.

    Args:
        epochs: Of the second stage, fewer than the recipe has.

    Source:
        Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, ICLR 2020, 4.
    """

    epochs: Count = 10

    def __post_init__(self) -> None:
        check_fields(self)


ADDITIONS: tuple[type, ...] = (
    *(EMA, SWA),
    *(RandAugment, TrivialAugment),
    *(LogitAdjustment, TauNormalised, RetrainedClassifier),
)
"""The parts that a recipe may add: averages, policies, and steps after training."""
