"""The versions of what trials are made of: a component's version is raised when its results change, by nothing else.

A trial's results count as long as the components that it uses have the versions with which it was trained. A renamed
function, a faster kernel with the same results or a new loss changes no version, and so starts nothing anew.
``make regression`` measures small trials of every component and is red where results move and a version does not.

To raise a version, change its number here, with a line that says since when and why, and store the new results:
``make regression REGRESSION=--renew``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from topk_platform.references import is_reference
from topk_platform.specs import FEATURES, Arm, Choice, OptunaSampler
from topk_platform.user_code import reached

__all__ = ["VERSIONS", "components_of", "differences", "named_by", "version_of"]

VERSIONS: Mapping[str, int] = {
    "engine": 1,  # the loop, schedules, metrics, seeds, splits, SGD
    # losses
    "loss active_passive_loss": 1,
    "loss asymmetric_loss": 1,
    "loss autkc": 1,
    "loss balanced_softmax": 1,
    "loss calibrated_topk_hinge": 1,
    "loss conformal_training": 1,
    "loss convex_topk_hinge": 1,
    "loss cross_entropy": 1,
    "loss early_learning": 1,
    "loss focal": 1,
    "loss generalized_cross_entropy": 1,
    "loss label_smoothing": 1,
    "loss ldam": 1,
    "loss logit_adjusted": 1,
    "loss logit_clip": 1,
    "loss noised_imbalanced_topk_hinge": 1,
    "loss noised_topk_hinge": 1,
    "loss smooth_topk_hinge": 1,
    "loss smooth_topk_svm": 1,
    "loss soft_topk_loss": 1,
    "loss sorting_topk_cross_entropy": 1,
    "loss symmetric_cross_entropy": 1,
    "loss topk_entropy": 1,
    "loss topk_grouping": 1,
    "loss topk_hinge": 1,
    "loss topk_transition": 1,
    "loss truncated_topk_entropy": 1,
    "loss vector_scaling": 1,
    # networks
    "network convnet": 1,
    "network densenet": 1,
    "network densenet121_small": 1,
    "network feature_head": 1,
    "network linear": 1,
    "network mlp": 1,
    "network resnet18_small": 1,
    "network resnet_small": 1,
    "network torchvision": 1,
    # datasets; data that change have another fingerprint besides
    "dataset cifar100": 1,
    "dataset digits": 1,
    "dataset image_features": 1,
    "dataset image_files": 1,
    "dataset image_folder": 1,
    "dataset imagenet": 1,
    "dataset imagenet_lt": 1,
    "dataset inaturalist": 1,
    "dataset kanji": 1,
    "dataset letters": 1,
    "dataset parquet_images": 1,
    "dataset plantnet300k": 1,
    "dataset ring": 1,
    "dataset synthetic_images": 1,
    # conditions
    "condition ConfusionNoise": 1,
    "condition InstanceNoise": 1,
    "condition LabelNoise": 1,
    "condition LongTail": 1,
    "condition NoisyLabels": 1,
    "condition PairFlip": 1,
    "condition PerClass": 1,
    "condition TrainFraction": 1,
    # what a recipe adds
    "recipe adam": 1,
    "recipe adamw": 1,
    "recipe augmentation": 1,
    "recipe average": 1,
    "recipe cuda_graphs": 1,
    "recipe heavy_ball": 1,
}
"""The version of each component, by its kind and its name in the catalogue."""


def components_of(arm: Arm) -> dict[str, str]:
    """Return the components that an arm's trials use, each with its version.

    What an arm names by ``package.module:attribute`` counts by the code that it reaches in the user's files, and by the
    versions of the installed packages that it imports (:func:`~topk_platform.user_code.reached`).

    Example:
        >>> from topk_platform.specs import LabelNoise, Loss, Model, Recipe, Regime
        >>> arm = Arm(Regime("r", "letters", (LabelNoise(0.2),)), Model("mlp"), Loss("cross_entropy"), 5, Recipe(1))
        >>> [*components_of(arm)]
        ['engine', 'condition LabelNoise', 'dataset letters', 'loss cross_entropy', 'network mlp']
    """
    names = named_by(arm)
    own = [f"{kind} {name}" for kind, name in names if not is_reference(name)]
    own += [f"condition {type(condition).__name__}" for condition in arm.regime.conditions]
    own += [f"recipe {name}" for name in _additions(arm)]
    result = {name: str(VERSIONS[name]) for name in ["engine", *sorted(set(own) & VERSIONS.keys())]}
    for _, name in names:
        if is_reference(name):
            result |= _users(name)
    return result


def version_of(arm: Arm) -> str:
    """Return the components of an arm's trials with their versions as one text, which identifies their code.

    Example:
        >>> from topk_platform.specs import Loss, Model, Recipe, Regime
        >>> version_of(Arm(Regime("r", "digits"), Model("mlp"), Loss("ldam"), 3, Recipe(1)))
        'engine 1, dataset digits 1, loss ldam 1, network mlp 1'
    """
    return ", ".join(f"{name} {version}" for name, version in components_of(arm).items())


def differences(was: str, now: str) -> list[str]:
    """Return how the components of two texts of :func:`version_of` differ.

    Example:
        >>> differences("engine 1, loss ldam 1", "engine 2, loss ldam 1, recipe average 1")
        ['engine: version 1, now 2', 'recipe average: new']
    """
    before, after = _read(was), _read(now)
    texts = {
        name: "new"
        if name not in before
        else "gone"
        if name not in after
        else f"version {before[name]}, now {after[name]}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    }
    return [f"{name}: {text}" for name, text in texts.items()]


def _read(text: str) -> dict[str, str]:
    return dict(part.rsplit(" ", 1) for part in text.split(", "))


def named_by(arm: Arm) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of what an arm names in catalogues, or by reference: data, network, loss, sampler.

    The data of features are a dataset of images and a backbone.
    """
    yield from (("dataset", arm.regime.dataset), ("network", arm.model.name), ("loss", arm.loss.name))
    if arm.regime.dataset == FEATURES:
        options = arm.regime.options
        yield from (
            (kind, str(options[key]))
            for kind, key in (("dataset", "of"), ("backbone", "backbone"))
            if key in options
        )
    if arm.is_searched and isinstance(arm.protocol.sampler, OptunaSampler):
        yield "sampler", arm.protocol.sampler.reference


def _additions(arm: Arm) -> Iterator[str]:
    recipe, optimizers = arm.recipe, arm.loss.space.get("optimizer")
    yield from (
        optimizers.options
        if isinstance(optimizers, Choice)
        else (arm.loss.fixed.get("optimizer", recipe.optimizer),)
    )
    yield from ["average"] * (recipe.average is not None)
    yield from ["augmentation"] * (recipe.augmentation != type(recipe.augmentation)())
    yield from ["cuda_graphs"] * recipe.numerics.cuda_graphs


def _users(reference: str) -> dict[str, str]:
    code = reached(reference)
    if code.version is not None:
        return {reference: str(code.version)}
    losses = sum(version - 1 for name, version in VERSIONS.items() if name.startswith("loss ")) + 1
    return {
        reference: code.digest or "installed",
        **{f"package {name}": version for name, version in code.packages.items()},
        **({"package topk_losses": str(losses)} if code.losses else {}),
    }
