"""Searches in the papers' regimes: for each of the papers' studies, one that searches what the paper fixes.

Learning rate and weight decay are searched for every loss, in the same ranges. In addition each loss searches its own
parameters, two at most: the temperature, τ, ε and B, margins and scales. For B, the exact expectation is one of the
choices. The first trial of a search has the paper's values, so that the best trial is never worse than these on the
validation split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from topk_platform import (
    Arm,
    Float,
    LongTail,
    Loss,
    Model,
    PerClass,
    Recipe,
    Regime,
    Study,
    TrainFraction,
    grid,
)
from topk_platform.specs import Scalar
from topk_studies.berrada2018 import noisy_cifar100
from topk_studies.recipes import (
    BERRADA2018_IMAGENET,
    GARCIN2022_CIFAR100,
    GARCIN2022_IMAGENET_LT,
    GARCIN2022_PLANTNET,
    SAWADA2020_CIFAR100_CUTOUT,
    SAWADA2020_CIFAR100_MIXUP,
)
from topk_studies.searched_losses import SHARED, Searched, begun_at, searched

__all__ = [
    "search_cifar100_augmented",
    "search_cifar100_fraction",
    "search_cifar100_noise",
    "search_cifar100_tail",
    "search_imagenet",
    "search_imagenet_lt",
    "search_plantnet",
]

_K = 5
_TRIALS = 20
_BALANCED = (
    "cross_entropy",
    "smooth_topk_svm",
    "noised_topk_hinge",
    "calibrated_topk_hinge",
    "topk_transition",
    "topk_grouping",
)
_UNEVEN = ("focal", "ldam", "noised_imbalanced_topk_hinge")
_DENSENET = Model("densenet", {"depth": 40, "growth": 40}, label="densenet40-40")
_RESNET18 = Model("torchvision", {"architecture": "resnet18"}, label="resnet18")
_RESNET34 = Model("torchvision", {"architecture": "resnet34"}, label="resnet34")
_PRETRAINED = Model(
    "torchvision", {"architecture": "resnet50", "weights": "IMAGENET1K_V1"}, label="resnet50-pretrained"
)


def _losses(
    shared: Searched = SHARED,
    names: Iterable[str] = _BALANCED,
    **firsts: Mapping[str, Scalar],
) -> list[Loss]:
    """Return the losses of these names; ``firsts`` are the paper's first values where the catalogue has others."""
    return [begun_at(searched(name, shared), **firsts.get(name, {})) for name in names]


def _arms(
    regimes: Iterable[Regime], model: Model, losses: Iterable[Loss], recipe: Recipe, metric: str = ""
) -> tuple[Arm, ...]:
    return grid(regimes, [model], losses, k=_K, recipe=recipe, metric=metric)


def _study(name: str, arms: Iterable[Arm], description: str, seeds: int, show: tuple[str, ...]) -> Study:
    return Study(
        name=name,
        arms=tuple(arms),
        trials=_TRIALS,
        seeds=seeds,
        show=show,
        device="cuda",
        description=description,
    )


def search_cifar100_noise() -> Study:
    """Return the search for berrada2018's and garcin2022's studies of noise: CIFAR-100, label noise from 0 to 1.

    The regime without noise also belongs to their studies of τ, ε and B.

    Example:
        >>> [arm.regime.name for arm in search_cifar100_noise().arms[::6]]
        ['noise-0.0', 'noise-0.2', 'noise-0.4', 'noise-0.6', 'noise-0.8', 'noise-1.0']
    """
    regimes = [noisy_cifar100(level) for level in ("0.0", "0.2", "0.4", "0.6", "0.8", "1.0")]
    return _study(
        "search_cifar100_noise",
        _arms(regimes, _DENSENET, _losses(), GARCIN2022_CIFAR100),
        "CIFAR-100, label noise 0 to 1, all searched; DenseNet 40-40; six losses, K = 5",
        seeds=4,
        show=("top1", "top5"),
    )


def search_cifar100_fraction() -> Study:
    """Return the search on 10 to 100 % of CIFAR-100's images.

    Example:
        >>> [arm.regime.name for arm in search_cifar100_fraction().arms[::6]]
        ['images-10', 'images-25', 'images-50', 'images-100']
    """
    regimes = [
        Regime(f"images-{percent}", "cifar100", (TrainFraction(percent / 100),) if percent < 100 else ())
        for percent in (10, 25, 50, 100)
    ]
    return _study(
        "search_cifar100_fraction",
        _arms(regimes, _DENSENET, _losses(), GARCIN2022_CIFAR100),
        "CIFAR-100, 10 to 100 % of the images, all searched; DenseNet 40-40; six losses, K = 5",
        seeds=4,
        show=("top1", "top5"),
    )


def search_cifar100_tail() -> Study:
    """Return the search on long tails of CIFAR-100: the largest class has 10 or 100 times the smallest one's images.

    Example:
        >>> sorted({arm.metric for arm in search_cifar100_tail().arms}), len(search_cifar100_tail().arms)
        (['macro_top5'], 18)
    """
    regimes = [Regime(f"tail-{ratio}", "cifar100", (LongTail(ratio),)) for ratio in (10, 100)]
    recipe = replace(GARCIN2022_CIFAR100, keep=("macro_top5",))
    return _study(
        "search_cifar100_tail",
        _arms(regimes, _DENSENET, _losses(names=_BALANCED + _UNEVEN), recipe, "macro_top5"),
        "CIFAR-100, long tails of 10 and 100, all searched; DenseNet 40-40; nine losses, K = 5",
        seeds=4,
        show=("macro_top1", "macro_top5", "few_top5"),
    )


def search_cifar100_augmented() -> Study:
    """Return the search for sawada2020's study: CIFAR-100 with Cutout or Mixup, and ResNet-18.

    The smooth top-K SVM does not take soft labels, so it has no arm with Mixup.

    Example:
        >>> len(search_cifar100_augmented().only("cutout/*").arms), len(search_cifar100_augmented().arms)
        (6, 11)
    """
    shared = {**SHARED, "weight_decay": (SHARED["weight_decay"][0], 5e-4)}
    model = Model("resnet18_small", label="resnet18")
    recipes = {"cutout": SAWADA2020_CIFAR100_CUTOUT, "mixup": SAWADA2020_CIFAR100_MIXUP}
    arms = [
        arm
        for name, recipe in recipes.items()
        for arm in _arms([Regime(name, "cifar100")], model, _losses(shared), recipe)
        if name == "cutout" or arm.loss.name != "smooth_topk_svm"
    ]
    return _study(
        "search_cifar100_augmented",
        arms,
        "CIFAR-100, Cutout or Mixup, all searched; ResNet-18; six losses, K = 5",
        seeds=5,
        show=("top1", "top5"),
    )


def search_imagenet() -> Study:
    """Return the search for berrada2018's and garcin2022's studies of ImageNet and of 5 to 50 % of its images.

    The first values are theirs: learning rate 1, weight decay 2.5e-5 and τ = 0.1 for the smooth top-K SVM; weight decay
    1.5e-4, ε = 0.5 and B = 10 for the noised hinge.

    Example:
        >>> [arm.regime.name for arm in search_imagenet().arms[::6]]
        ['100-percent', '50-percent', '25-percent', '10-percent', '5-percent']
    """
    losses = _losses(
        {
            "learning_rate": (Float(0.01, 10.0, log=True), 0.1),
            "weight_decay": (Float(1e-6, 1e-3, log=True), 1e-4),
        },
        smooth_topk_svm={"learning_rate": 1.0, "weight_decay": 2.5e-5, "tau": 0.1},
        noised_topk_hinge={"weight_decay": 1.5e-4, "epsilon": 0.5},
    )
    parts = {
        "100": (),
        "50": (PerClass(640),),
        "25": (PerClass(320),),
        "10": (PerClass(128),),
        "5": (PerClass(64),),
    }
    regimes = [Regime(f"{percent}-percent", "imagenet", part) for percent, part in parts.items()]
    return _study(
        "search_imagenet",
        _arms(regimes, _RESNET18, losses, BERRADA2018_IMAGENET),
        "ImageNet and 5 to 50 % of it, all searched; ResNet-18; six losses, K = 5",
        seeds=3,
        show=("top1", "top5"),
    )


def search_imagenet_lt() -> Study:
    """Return the search on ImageNet-LT, a long tail, on which the final version of garcin2022 compares losses.

    Example:
        >>> [arm.loss.label for arm in search_imagenet_lt().arms][-2:]
        ['ldam', 'noised_imbalanced_topk_hinge']
    """
    shared = {**SHARED, "weight_decay": (SHARED["weight_decay"][0], 5e-4)}
    return _study(
        "search_imagenet_lt",
        _arms(
            [Regime("imagenet-lt", "imagenet_lt")],
            _RESNET34,
            _losses(shared, _BALANCED + _UNEVEN, smooth_topk_svm={"tau": 0.1}),
            GARCIN2022_IMAGENET_LT,
            "macro_top5",
        ),
        "ImageNet-LT, all searched; ResNet-34; nine losses, K = 5",
        seeds=4,
        show=("macro_top1", "macro_top5", "few_top5"),
    )


def search_plantnet() -> Study:
    """Return the search for garcin2022's study of Pl@ntNet-300K: pretrained ResNet-50, K = 5.

    Example:
        >>> search_plantnet().arms[-1].loss.fixed["scale"], search_plantnet().arms[0].loss.first["learning_rate"]
        (60.0, 0.002)
    """
    *losses, noised = _losses(
        {**SHARED, "learning_rate": (Float(1e-4, 0.1, log=True), 2e-3)},
        _BALANCED + _UNEVEN,
        smooth_topk_svm={"tau": 0.1},
        ldam={"max_margin": 0.2, "scale": 40.0},
    )
    losses.append(replace(noised, fixed={**noised.fixed, "scale": 60.0}))
    return _study(
        "search_plantnet",
        _arms(
            [Regime("plantnet300k", "plantnet300k")],
            _PRETRAINED,
            losses,
            GARCIN2022_PLANTNET,
            "macro_top5",
        ),
        "Pl@ntNet-300K, a long tail, all searched; pretrained ResNet-50; nine losses, K = 5",
        seeds=4,
        show=("macro_top1", "macro_top5", "top5"),
    )
