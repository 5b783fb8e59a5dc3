"""A recipe's possible additions to the usual training: averaged weights, policies, and steps after training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from topk_platform.specs.fields import Below1, Count, NonNegative, Rule, check_fields

__all__ = [
    "EMA",
    "SWA",
    "LogitAdjustment",
    "RandAugment",
    "RetrainedClassifier",
    "TauNormalised",
    "TrivialAugment",
]

_Magnitude = Annotated[int, Rule("in 0 ... 30", lambda value: 0 <= value <= 30)]


@dataclass(frozen=True)
class EMA:
    """Evaluate, keep and export an exponential moving average of the weights: ``a ← d a + (1 - d) w`` after every step.

    Step t, from 1, has ``d = min(decay, t / (t + 9))``, so that the average soon forgets the initial weights. Running
    statistics of batch normalisation are averaged likewise; whole numbers are copied.

    Args:
        decay: In ``[0, 1)``; 0 is no averaging.

    Source:
        Polyak and Juditsky, SIAM J. Control Optim. 1992; the rising decay is that of TensorFlow's
        ``ExponentialMovingAverage``, ``(1 + n) / (10 + n)`` after n earlier steps.
    """

    decay: Below1 = 0.999

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class SWA:
    """Evaluate, keep and export the mean of the weights at the ends of the last epochs.

    From ``start`` on, the learning rate stays constant. The running statistics of batch normalisation are computed
    again for the mean weights, by a pass over the training samples without augmentation. Before the first end of an
    epoch after ``start``, the weights are those of usual training.

    Args:
        start: The share of all epochs after which averaging begins, in ``[0, 1)``.

    Source:
        Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, UAI 2018.
    """

    start: Below1 = 0.75

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class RandAugment:
    """Change each image by ``operations`` random operations of one strength, on the device.

    The operations and the meaning of a magnitude are those of torchvision's ``RandAugment`` with 31 bins. Pixels that
    move into view are black.

    Args:
        operations: The number of operations, applied one after another. Each is drawn with equal probability.
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

    The operations and their strengths are those of torchvision's ``TrivialAugmentWide`` with 31 bins. Pixels that move
    into view are black.

    Source:
        Müller and Hutter, TrivialAugment, ICCV 2021.
    """


@dataclass(frozen=True)
class LogitAdjustment:
    """After training, subtract ``τ log π_c`` from the score of each class c, with π_c its share of training samples.

    Validation and test are scored with the adjusted network, so τ can be searched on validation, as ``after_tau``.
    The offsets go into the bias of the network's last layer.

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

    Validation and test are scored with the changed network, so τ can be searched on validation, as ``after_tau``. The
    paper's definition, ``w / |w|^τ``, has no value if all weights of a class are 0, for example because it never had a
    sample. They stay 0: the class scores 0 on every image before and after. For τ < 1, this is the limit of
    ``w / |w|^τ`` as w goes to 0.

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
    """Train the last layer from scratch in the last epochs, on batches in which all classes are equally frequent (cRT).

    The other layers stay as the first stage left them. Each stage has the recipe's schedule over its own epochs. Both
    stages together have the recipe's epochs, so the budget is that of the other arms.

    Args:
        epochs: The epochs of the second stage, fewer than the recipe's.

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
