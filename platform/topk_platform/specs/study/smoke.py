"""What a smoke run makes of an arm: few epochs, and a small stand-in where its dataset is large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from topk_platform.specs.arms.additions import RetrainedClassifier
from topk_platform.specs.arms.arm import Arm, Model
from topk_platform.specs.arms.loss import Loss
from topk_platform.specs.arms.recipe import Recipe
from topk_platform.specs.arms.regime import Regime
from topk_platform.specs.metric_names import GROUPS
from topk_platform.specs.search.space import Choice, Scalar

__all__ = ["SMOKE", "STANDINS", "StandIn", "smoke_arm", "standin_reference"]

SMOKE = "-smoke"
"""What a smoke run's name ends in, after the study's."""

_MODULE = "topk_platform.testing.smoke_datasets"
_EPOCHS = 2
_BATCH = 16  # of some 50 images
_PARTS = 4
_WHOLE_SIZE = ("alexnet", "inception", "maxvit", "vit")  # torchvision's that take no small images


@dataclass(frozen=True)
class StandIn:
    """What stands in for a dataset, as a function of the same name in ``topk_platform.testing.smoke_datasets``.

    Args:
        classes: How many the dataset itself has.
        options: Those of the dataset that are set to something smaller.
        sized: Whether it has the options ``size`` and ``resize`` besides.
    """

    classes: int
    options: Mapping[str, Scalar]
    sized: bool = True


STANDINS: dict[str, StandIn] = {
    "cifar100": StandIn(100, {}, sized=False),
    "imagenet": StandIn(1000, {"validation": 2}),
    "imagenet_lt": StandIn(1000, {}),
    "inaturalist": StandIn(8142, {}),
    "letters": StandIn(62, {}, sized=False),
    "plantnet300k": StandIn(1081, {}),
}
"""The datasets that a smoke run does without, or takes a small part of."""

# Twice what the last feature maps shrink to one pixel at, where batch normalisation refuses a batch of one.
_SIZES: dict[str, Scalar] = {"size": 64, "resize": 72}


def smoke_arm(arm: Arm, classes: int) -> Arm:
    """Return an arm that takes seconds: two epochs, untrained weights, and a stand-in for a large dataset.

    Where there is a stand-in, batches have at most 16 samples, and an accuracy over the many-, medium- or few-shot
    classes, which it may lack, selects as one over all classes.

    Args:
        arm: The arm.
        classes: Of the stand-in, but never more than the dataset has.

    Example:
        >>> arm = Arm(Regime("r", "imagenet"), Model("torchvision"), Loss("ldam"), 5, Recipe(90, batch_size=256))
        >>> small = smoke_arm(arm, 8)
        >>> small.regime.dataset, small.regime.options["classes"], small.recipe.epochs, small.recipe.batch_size
        ('topk_platform.testing.smoke_datasets:imagenet', 8, 2, 16)
    """
    recipe = _short(arm.recipe)
    small = replace(arm, model=_untrained(arm.model), recipe=recipe)
    if arm.regime.dataset not in STANDINS:
        return small
    return replace(
        small,
        regime=_stood_in(arm.regime, arm.model, classes),
        loss=_of_small_batches(arm.loss),
        recipe=_in_small_batches(recipe),
        metric=_over_all(arm.metric),
        metrics=tuple(dict.fromkeys(map(_over_all, arm.metrics))),
    )


def _short(recipe: Recipe) -> Recipe:
    epochs, after = min(_EPOCHS, recipe.epochs), recipe.after
    if isinstance(after, RetrainedClassifier):
        after = replace(after, epochs=min(after.epochs, epochs - 1))
    return replace(recipe, epochs=epochs, after=after)


def _untrained(model: Model) -> Model:
    if model.name != "torchvision":
        return model
    return replace(model, options={name: value for name, value in model.options.items() if name != "weights"})


def _stood_in(regime: Regime, model: Model, classes: int) -> Regime:
    standin = STANDINS[regime.dataset]
    small = {**standin.options, "classes": min(classes, standin.classes)}
    architecture = str(model.options.get("architecture", ""))
    if standin.sized and not (model.name == "torchvision" and architecture.startswith(_WHOLE_SIZE)):
        small |= _SIZES
    return replace(regime, dataset=standin_reference(regime.dataset), options={**regime.options, **small})


def standin_reference(dataset: str) -> str:
    """Return the reference of a dataset's stand-in."""
    return f"{_MODULE}:{dataset}"


def _in_small_batches(recipe: Recipe) -> Recipe:
    return replace(
        recipe,
        batch_size=min(recipe.batch_size, _BATCH),
        accumulate=min(recipe.accumulate, _PARTS),
        keep=tuple(dict.fromkeys(map(_over_all, recipe.keep))),
    )


def _of_small_batches(loss: Loss) -> Loss:
    if "batch_size" in loss.fixed:
        size = loss.fixed["batch_size"]
        return replace(
            loss, fixed={**loss.fixed, "batch_size": min(size, _BATCH) if isinstance(size, int) else size}
        )
    others_wait = any("batch_size" in dimension.when for dimension in loss.space.values())
    if "batch_size" in loss.space and not others_wait:
        small = Choice((_BATCH // 2, _BATCH), loss.space["batch_size"].when)
        first = {**loss.first, **({"batch_size": _BATCH} if "batch_size" in loss.first else {})}
        return replace(loss, space={**loss.space, "batch_size": small}, first=first)
    return loss


def _over_all(metric: str) -> str:
    group, _, accuracy = metric.partition("_")
    return f"macro_{accuracy}" if group in GROUPS else metric
