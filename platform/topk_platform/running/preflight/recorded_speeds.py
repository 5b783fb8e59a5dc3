"""What a plan knows of large studies without their data and their GPU: numbers of images, and recorded speeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from topk_platform.protocol import ArmProgress
from topk_platform.specs import Model, PerClass, Regime, TrainFraction

__all__ = ["GPU", "recorded_seconds", "training_images"]

GPU = "H200"
"""The kind of GPU on which the speeds were recorded, alone on it."""

# Training images and classes of the datasets that are not in this package, with their default options.
_SIZES = {
    "cifar100": (45_000, 100),
    "imagenet": (1_231_167, 1000),
    "imagenet_lt": (115_846, 1000),
    "plantnet300k": (243_916, 1081),
}


@dataclass(frozen=True)
class _Speed:
    """A network's recorded speed in training.

    Args:
        model: The network.
        step: Seconds of a step, of 64 to 128 images; 0 if the step is not what limits it.
        images: Images a second; infinite if they are not what limits it.
    """

    model: Model
    step: float = 0.0
    images: float = math.inf


_SPEEDS = (
    _Speed(Model("densenet", {"depth": 40, "growth": 40}), step=0.030),
    _Speed(Model("torchvision", {"architecture": "resnet18"}), images=17_000.0),
)


def training_images(regime: Regime) -> int | None:
    """Return about how many images each epoch of a regime has, at most; None for a dataset that is not known.

    Example:
        >>> training_images(Regime("tenth", "cifar100", (TrainFraction(0.1),))), training_images(Regime("r", "ring"))
        (4500, None)
    """
    if regime.dataset not in _SIZES:
        return None
    images, classes = _SIZES[regime.dataset]
    for condition in regime.conditions:
        if isinstance(condition, TrainFraction):
            images = round(images * condition.fraction)
        elif isinstance(condition, PerClass):
            images = min(images, condition.samples * classes)
    return images


def recorded_seconds(arms: Sequence[ArmProgress]) -> dict[str, float]:
    """Return about how many seconds a trial of each arm takes on one :data:`GPU`; arms without a speed are left out.

    Args:
        arms: The arms.

    Returns:
        The seconds, by arm ID.

    Example:
        >>> from topk_studies import berrada2018_noise
        >>> from topk_platform.identity import Identity
        >>> study = berrada2018_noise()
        >>> seconds = recorded_seconds([ArmProgress(study, study.arms[0], Identity())])
        >>> [round(each / 3600, 2) for each in seconds.values()]  # 300 epochs of 704 steps
        [1.76]
    """
    known = {}
    for arm_id, arm in ((state.arm_id, state.arm) for state in arms):
        images = training_images(arm.regime)
        for speed in _SPEEDS:
            if images is not None and replace(speed.model, label=arm.model.label) == arm.model:
                steps = math.ceil(images / arm.recipe.batch_size)
                known[arm_id] = arm.recipe.epochs * max(steps * speed.step, images / speed.images)
    return known
