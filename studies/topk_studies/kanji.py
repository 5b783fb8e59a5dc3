"""Does what holds for 62 letters hold for a thousand characters? Kanji of free typefaces, every loss searched alike.

All studies take the characters that are used most. All their arms are searched five times in twenty trials each, except
those of :func:`kanji_quick`. With three searches of six trials, differences of accuracies had intervals of 20 points.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from topk_platform import (
    Arm,
    Claim,
    Contrast,
    LabelNoise,
    LongTail,
    Model,
    PerClass,
    Protocol,
    Recipe,
    Regime,
    Study,
    grid,
)
from topk_platform.specs import Condition
from topk_studies.berrada2018 import fraction_claims, map_claims, noise_claims
from topk_studies.claims import gaps, stand_ins
from topk_studies.garcin2022 import tail_claims
from topk_studies.searched_losses import SHARED, searched

__all__ = ["MLP", "kanji", "kanji_arms", "kanji_classes", "kanji_map", "kanji_quick"]

K = 5

MLP = Model("mlp", {"hidden": 128})
"""The network of the letters' studies; most of its weights are in the head."""

_CLASSES = 1006  # a third of the characters of the dataset
_SEARCHES = Protocol(searches=5)
# The papers' rate of 0.1 leaves networks hardly trained in so few steps, hinges most of all.
_SHARED = {**SHARED, "learning_rate": (SHARED["learning_rate"][0], 1.0)}
_TOPK = (1, 2, 3, 5, 10, 20)
_GUESSES = (1, 5, 20)
_STEPS = 20  # of an epoch with five images a class
_EPOCHS = {2: 30, 5: 20, 10: 12, 16: 8}
"""Epochs by images of each class: the same for all losses, and more where there are fewer images."""

_LOSSES = (
    "cross_entropy",
    "smooth_topk_svm",
    "noised_topk_hinge",
    "calibrated_topk_hinge",
    "topk_transition",
    "generalized_cross_entropy",
    "soft_topk_loss",
)
_UNEVEN = ("balanced_softmax", "ldam", "noised_imbalanced_topk_hinge")
_COMPARABLE = (
    "svm-beats-cross-entropy-with-noise",
    "svm-beats-cross-entropy-in-top1-with-noise",
    "cross-entropy-ahead-in-top1-without-noise",
)
"""The claims on noise that compare no noisy regime with the clean ones, which have other numbers of images."""
_NUMBERS = (62, 1006, 2965)
"""Classes, as many as the letters have and up to all characters."""
_FEW = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge")


def kanji_quick() -> Study:
    """Return the part of :func:`kanji_classes` that takes minutes: 62 and 1,006 characters, smaller searches.

    Example:
        >>> [arm.name for arm in kanji_quick().arms][::3]
        ['clean-62/mlp/cross_entropy', 'clean-1006/mlp/cross_entropy', 'noise-0.8-62/mlp/cross_entropy', \
'noise-0.8-1006/mlp/cross_entropy']
    """
    description = "62 or 1,006 of them in five typefaces, clean or noise 0.8; three losses"
    arms = [arm.searched(3) for arm in _classes_arms(_NUMBERS[:2])]
    study = _study("kanji_quick", arms, description, trials=9, seeds=3)
    return replace(study, claims=_classes_claims())


def kanji() -> Study:
    """Return the study of 1,006 characters: few typefaces, noise among look-alikes, and a long tail.

    Clean with pictures of 2, 5 and 16 typefaces of each character; 10 of each with labels noised among look-alikes,
    with probability 0.4 and 0.8; and a long tail on which the most frequent character has 16 pictures and the rarest
    one.

    Example:
        >>> sorted({arm.regime.name for arm in kanji().arms})
        ['clean-16', 'clean-2', 'clean-5', 'long-tail', 'noise-0.4', 'noise-0.8']
    """
    arms = [
        *(arm for n in (2, 5, 16) for arm in kanji_arms(_regime(f"clean-{n}", PerClass(n)), _LOSSES, n)),
        *(
            arm
            for p in (0.4, 0.8)
            for arm in kanji_arms(_regime(f"noise-{p}", PerClass(10), LabelNoise(p)), _LOSSES, 10)
        ),
        *kanji_arms(_regime("long-tail", LongTail(16)), (*_LOSSES, *_UNEVEN), 5, metric="macro_top5"),
    ]
    show = ("top1", "top5", "macro_top5")
    study = _study("kanji", arms, "few typefaces, noise or a long tail", show=show)
    return replace(study, claims=_papers_claims())


def kanji_map() -> Study:
    """Return the map: label noise 0 and 0.8 by pictures of 2, 5 and 16 typefaces by K = 1, 5 and 20.

    Every loss is trained for K guesses and selected by its top-K accuracy.

    Example:
        >>> [(arm.regime.name, arm.metric) for arm in kanji_map().arms[:9:3]]
        [('noise-0-images-2-k-1', 'top1'), ('noise-0-images-2-k-5', 'top5'), ('noise-0-images-2-k-20', 'top20')]
    """
    arms = [
        arm
        for p in (0.0, 0.8)
        for n in (2, 5, 16)
        for k in _GUESSES
        for arm in kanji_arms(
            _regime(f"noise-{p:g}-images-{n}-k-{k}", PerClass(n), LabelNoise(p)), _FEW, n, k=k
        )
    ]
    show = tuple(f"top{k}" for k in _GUESSES)
    study = _study("kanji_map", arms, "noise 0 and 0.8 by 2, 5, 16 typefaces by K = 1, 5, 20", show=show)
    claims = map_claims([_pair(f"noise-0-images-{n}-k-5") for n in (2, 16)], _pair("noise-0.8-images-16-k-5"))
    return replace(study, claims=stand_ins(*claims))


def kanji_classes() -> Study:
    """Return the study of the number of classes: 62, 1,006 and 2,965 characters in five typefaces.

    Clean, and with labels noised among look-alikes with probability 0.8. Every loss is searched five times, in twenty
    trials each, and each of the five configurations is trained with two fresh seeds. Batches grow with the number of
    classes, so all arms take the same number of steps and see each picture equally often.

    Example:
        >>> {arm.regime.name: arm.recipe.batch_size for arm in kanji_classes().arms}["clean-2965"]
        742
    """
    description = "62, 1,006 or 2,965 of them in five typefaces, clean or noise 0.8; three losses"
    study = _study("kanji_classes", _classes_arms(_NUMBERS), description)
    return replace(study, claims=_classes_claims())


def _classes_arms(numbers: Iterable[int]) -> list[Arm]:
    return [
        arm
        for noise in (0.0, 0.8)
        for classes in numbers
        for arm in kanji_arms(
            _regime(f"{_condition_name(noise)}-{classes}", PerClass(5), LabelNoise(noise), classes=classes),
            _FEW,
            5,
            classes=classes,
        )
    ]


def _condition_name(noise: float) -> str:
    return f"noise-{noise:g}" if noise else "clean"


def _regime(name: str, *conditions: Condition, classes: int = _CLASSES) -> Regime:
    return Regime(name, "kanji", conditions, options={"classes": classes})


def kanji_arms(
    regime: Regime,
    losses: Iterable[str],
    images: int,
    k: int = K,
    classes: int = _CLASSES,
    metric: str = "",
) -> tuple[Arm, ...]:
    """Return the arms of some losses in a regime with this many images of each class, searched five times."""
    epochs = _EPOCHS[images]
    recipe = Recipe(
        epochs=epochs,
        batch_size=-(-5 * classes // _STEPS),
        warmup=epochs / 20,
        clip_norm=1.0,
        evaluate_every=max(epochs // 2, 1),
    )
    made = [searched(name, _SHARED) for name in losses]
    return grid([regime], [MLP], made, k=k, recipe=recipe, protocol=_SEARCHES, metric=metric)


def _study(
    name: str,
    arms: Iterable[Arm],
    description: str,
    show: tuple[str, ...] = ("top1", "top5"),
    trials: int = 100,
    seeds: int = 10,
) -> Study:
    return Study(
        name=name,
        arms=tuple(arms),
        topk=_TOPK,
        trials=trials,
        seeds=seeds,
        show=show,
        description=f"kanji of free typefaces: {description}; an MLP",
    )


def _pair(regime: str) -> str:
    return f"{regime}/{MLP.label}"


def _papers_claims() -> tuple[Claim, ...]:
    """Return the papers' sentences on noise, little data and long tails, asked when the results were known."""
    noise = noise_claims(
        "berrada2018, Table 1", [_pair(name) for name in ("clean-16", "noise-0.4", "noise-0.8")]
    )
    asked = [claim for claim in noise if claim.name in _COMPARABLE]
    parts, tail = fraction_claims([_pair("clean-2"), _pair("clean-5")], _pair("clean-16")), _pair("long-tail")
    return stand_ins(*asked, *parts, *tail_claims(tail))


def _classes_claims() -> tuple[Claim, ...]:
    def growth(noise: float, ours: str, theirs: str, metric: str) -> list[Contrast]:
        few, many = (
            gaps([f"{_condition_name(noise)}-{classes}/{MLP.label}"], ours, theirs, metric)[0]
            for classes in _NUMBERS[:2]
        )
        return [many.minus(few)]

    source = "a question of this dataset"
    return (
        Claim(
            name="the-price-grows",
            text="What the smooth top-5 SVM loses in the first guess, clean, grows from 62 classes to 1,006.",
            source=source,
            contrasts=growth(0.0, "cross_entropy", "smooth_topk_svm", "top1"),
            tolerance=1.0,
        ),
        Claim(
            name="the-gain-grows",
            text="What the smooth top-5 SVM gains in five guesses with noise 0.8 grows from 62 classes to 1,006.",
            source=source,
            contrasts=growth(0.8, "smooth_topk_svm", "cross_entropy", "top5"),
            tolerance=1.0,
        ),
    )
