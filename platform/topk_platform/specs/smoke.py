"""A study in seconds: few trials, seeds and epochs, and small stand-ins for the large datasets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topk_platform.specs.arm import Arm, Model, Regime
from topk_platform.specs.metric_names import GROUPS, measure_of
from topk_platform.specs.regime_conditions import ConfusionNoise, NoisyLabels
from topk_platform.specs.search_rules import Grid, Random
from topk_platform.specs.space import Scalar

if TYPE_CHECKING:
    from topk_platform.specs.study import Study

__all__ = [
    "FEATURES",
    "SMOKE",
    "STANDINS",
    "StandIn",
    "images_of",
    "smoke_arm",
    "smoke_study",
    "standin_reference",
]

SMOKE = "-smoke"
"""The suffix that a smoke run's name adds to the study's name."""

_MODULE = "topk_platform.testing.smoke_datasets"
FEATURES = "image_features"
"""The dataset of the features of another dataset's images, which its option ``of`` names."""

_PIXELS = 32  # side of the images for a backbone
_EPOCHS = 2
_TRIALS = 2  # the trials of each search
_SEEDS = 2  # the seeds of an arm, at least
_CLASSES = 8
_BATCH = 16  # images of a batch; the stand-ins have about 50
# Fewer layers: DenseNet 40-40 takes half a minute a step on a busy machine.
_SMALL_NETWORKS: Mapping[str, Mapping[str, Scalar]] = {
    "densenet": {"depth": 7, "growth": 4},
    "densenet121_small": {"layers": 1},
    "resnet_small": {"depth": 8, "width": 4},
}
_WHOLE_SIZE = ("alexnet", "inception", "maxvit", "vit")  # torchvision's networks that take no small images


@dataclass(frozen=True)
class StandIn:
    """A small dataset that takes the place of a large one.

    Its function has the same name as the large dataset, in ``topk_platform.testing.smoke_datasets``.

    Args:
        classes: The number of classes of the large dataset.
        options: Smaller values for options of the dataset.
        sized: Whether the dataset also has the options ``size`` and ``resize``.
    """

    classes: int
    options: Mapping[str, Scalar]
    sized: bool = True


STANDINS: dict[str, StandIn] = {
    "cifar100": StandIn(100, {}, sized=False),
    "imagenet": StandIn(1000, {"validation": 2}),
    "imagenet_lt": StandIn(1000, {}),
    "inaturalist": StandIn(8142, {}),
    "kanji": StandIn(2965, {}, sized=False),
    "letters": StandIn(62, {}, sized=False),
    "plantnet300k": StandIn(1081, {}),
}
"""The stand-ins of the large datasets, by the dataset's name."""

# At half this size, the last feature maps have one pixel, and batch normalisation refuses a batch of one image.
_SIZES: dict[str, Scalar] = {"size": 64, "resize": 72}


def smoke_study(study: Study) -> Study:
    """Return a study shrunk to seconds; see :meth:`~topk_platform.Study.smoke`.

    Args:
        study: The study.
    """
    numbers = [m.number for name in study.measures if (m := measure_of(name)) and m.kind != "size"]
    classes = max(_CLASSES, 2 + max(*study.topk, *numbers, *(arm.k for arm in study.arms)))
    return replace(
        study,
        name=f"{study.name}{SMOKE}",
        arms=tuple(smoke_arm(arm, classes) for arm in study.arms),
        trials=_TRIALS * study.searches,
        seeds=study.searches * math.ceil(_SEEDS / study.searches),
        published=(),
        claims=(),
    )


def smoke_arm(arm: Arm, classes: int) -> Arm:
    """Return an arm that takes seconds: two epochs, few layers, untrained weights, a stand-in for a large dataset.

    Two trials cannot hold a grid, so they are drawn at random instead. With a stand-in, the recipe's batches have at
    most 16 samples. A stand-in may have no many-, medium- or few-shot classes, so an accuracy over such a group is
    replaced by the macro accuracy over all classes.

    Args:
        arm: The arm.
        classes: The number of classes of the stand-in, but never more than the dataset has.

    Example:
        >>> from topk_platform.specs import Loss, Recipe
        >>> arm = Arm(Regime("r", "imagenet"), Model("torchvision"), Loss("ldam"), 5, Recipe(90, batch_size=256))
        >>> small = smoke_arm(arm, 8)
        >>> small.regime.dataset, small.regime.options["classes"], small.recipe.epochs, small.recipe.batch_size
        ('topk_platform.testing.smoke_datasets:imagenet', 8, 2, 16)
    """
    model, protocol = arm.model, arm.protocol
    recipe = replace(arm.recipe, epochs=min(_EPOCHS, arm.recipe.epochs))
    if small_options := _SMALL_NETWORKS.get(model.name):
        model = replace(model, options={**model.options, **small_options})
    if model.name == "torchvision":
        model = replace(model, options={n: value for n, value in model.options.items() if n != "weights"})
    if isinstance(protocol.sampler, Grid):
        protocol = replace(protocol, sampler=Random())
    small = replace(arm, model=model, recipe=recipe, protocol=protocol)
    if images_of(arm.regime) not in STANDINS:
        return small
    return replace(
        small,
        regime=_stood_in(arm.regime, arm.model, classes),
        recipe=replace(
            recipe,
            batch_size=min(recipe.batch_size, _BATCH),
            keep=tuple(dict.fromkeys(map(_over_all, recipe.keep))),
        ),
        metric=_over_all(arm.metric),
    )


def images_of(regime: Regime) -> str:
    """Return the dataset of a regime's images, also if the regime takes features of them."""
    return str(regime.options.get("of", "")) if regime.dataset == FEATURES else regime.dataset


def _stood_in(regime: Regime, model: Model, classes: int) -> Regime:
    images = images_of(regime)
    standin = STANDINS[images]
    small: dict[str, Scalar] = {**standin.options, "classes": min(classes, standin.classes)}
    architecture = str(model.options.get("architecture", ""))
    if standin.sized and not (model.name == "torchvision" and architecture.startswith(_WHOLE_SIZE)):
        small |= _SIZES
    reference = standin_reference(images)
    # A file of labels or of confusions does not fit a stand-in: it is of real images.
    kept = tuple(
        condition
        for condition in regime.conditions
        if not isinstance(condition, ConfusionNoise | NoisyLabels)
    )
    regime = replace(regime, conditions=kept)
    if regime.dataset == FEATURES:
        return replace(regime, options={**regime.options, **small, "of": reference, "pixels": _PIXELS})
    return replace(regime, dataset=reference, options={**regime.options, **small})


def standin_reference(dataset: str) -> str:
    """Return the reference of a dataset's stand-in."""
    return f"{_MODULE}:{dataset}"


def _over_all(metric: str) -> str:
    group, _, accuracy = metric.partition("_")
    return f"macro_{accuracy}" if group in GROUPS else metric
