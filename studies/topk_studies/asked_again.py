"""The main finding, asked again of new data: the claims of these studies were written before the studies ran.

Earlier studies formed the sentence "where most labels are wrong, the smooth SVM is ahead of cross-entropy among five
guesses, and with right labels both are equal". Here each claim is one contrast, averaged over its regimes. Letters and
characters exchange the typefaces for training and for testing; photographs are drawn with another root seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from topk_platform import Arm, Claim, Contrast, LabelNoise, PerClass, Protocol, Regime, Study, grid
from topk_platform.specs import Scalar
from topk_studies.claims import average_gap
from topk_studies.kanji import kanji_arms
from topk_studies.letters import CONVNET, MLP, SHOW, TOGETHER, TOPK, K, recipe
from topk_studies.photos import EPOCHS, LINEAR, PHOTOS, SIZES, photo_arms
from topk_studies.searched_losses import searched

__all__ = ["kanji_again", "letters_again", "letters_again_convnet", "photos_again"]

_SEARCHES, _TRIALS = 10, 15  # five trials for each dimension of a search
_ENTROPY, _SVM, _SOFT = "cross_entropy", "smooth_topk_svm", "soft_topk_loss"
_TITLES = {_SVM: "smooth top-5 SVM", _SOFT: "soft top-5 loss"}
_ALIKE, _CLEAN, _ALL = "alike", "clean", "all"
"""Labels redrawn among look-alikes with probability 0.8, right labels, labels redrawn among all classes."""

_SOURCE = "stated before the study was run, from earlier studies of the same kind of data"


def letters_again() -> Study:
    """Return the study of letters with the typefaces exchanged; wrong labels are look-alikes or any character.

    Regimes are called ``KIND-images-N``; the kinds are ``alike``, ``clean`` and ``all``.

    Example:
        >>> study = letters_again()
        >>> [arm.regime.name for arm in study.only("*/cross_entropy").arms]
        ['alike-images-5', 'alike-images-50', 'clean-images-5', 'clean-images-50', 'all-images-5', 'all-images-50']
        >>> study.claims[0].contrasts[0].weights["alike-images-5/mlp/smooth_topk_svm"]
        0.5
    """
    epochs = {5: 100, 50: 28}
    losses = [*map(searched, (_ENTROPY, _SVM, _SOFT))]
    arms = [
        arm
        for kind in (_ALIKE, _CLEAN, _ALL)
        for images in epochs
        for arm in grid(
            [_regime(kind, images, "letters", {"exchanged": True})],
            [MLP],
            losses,
            k=K,
            recipe=recipe(epochs[images]),
            protocol=replace(TOGETHER, searches=_SEARCHES),
        )
    ]
    study = _study("letters_again", arms, "letters, typefaces exchanged: noise 0.8 or none; an MLP")
    return replace(study, seeds=5 * _SEARCHES)


def letters_again_convnet() -> Study:
    """Return the study of letters with five images of each class on a small convolutional network.

    The typefaces are exchanged, and wrong labels are look-alikes.

    Example:
        >>> [arm.loss.name for arm in letters_again_convnet().only("clean-images-5/*").arms]
        ['cross_entropy', 'smooth_topk_svm']
    """
    regimes = [_regime(kind, 5, "letters", {"exchanged": True}) for kind in (_ALIKE, _CLEAN)]
    losses = [*map(searched, (_ENTROPY, _SVM))]
    protocol = Protocol(searches=_SEARCHES)
    arms = grid(regimes, [CONVNET], losses, k=K, recipe=recipe(100), protocol=protocol)
    return _study("letters_again_convnet", arms, "letters, typefaces exchanged: noise 0.8 or none; a convnet")


def kanji_again() -> Study:
    """Return the study of 1,006 characters with the typefaces exchanged; wrong labels are look-alikes.

    Example:
        >>> [arm.regime.name for arm in kanji_again().only("*/cross_entropy").arms]
        ['alike-images-5', 'alike-images-10', 'clean-images-5', 'clean-images-10']
    """
    options = {"classes": 1006, "exchanged": True}
    arms = [
        arm.searched(_SEARCHES)
        for kind in (_ALIKE, _CLEAN)
        for images in (5, 10)
        for arm in kanji_arms(_regime(kind, images, "kanji", options), (_ENTROPY, _SVM, _SOFT), images)
    ]
    return _study("kanji_again", arms, "1,006 characters, typefaces exchanged: noise 0.8 or none; an MLP")


def photos_again() -> Study:
    """Return the study of CIFAR-100's features with another root seed; wrong labels are of the same superclass.

    Example:
        >>> [arm.regime.name for arm in photos_again().only("*/cross_entropy").arms][:2]
        ['alike-images-5', 'alike-images-20']
    """
    arms = [
        arm.searched(_SEARCHES)
        for kind in (_ALIKE, _CLEAN)
        for images, epochs in {**SIZES, 450: EPOCHS}.items()
        for arm in photo_arms(
            [(_regime(kind, images, "image_features", PHOTOS), epochs)],
            [LINEAR],
            (_ENTROPY, _SVM),
        )
    ]
    study = _study("photos_again", arms, "CIFAR-100 as features of a frozen network: noise 0.8 or none")
    return replace(study, seed=1)


def _study(name: str, arms: Iterable[Arm], description: str) -> Study:
    arms = tuple(arms)
    return Study(
        name=name,
        arms=arms,
        topk=TOPK,
        trials=_TRIALS * _SEARCHES,
        seeds=2 * _SEARCHES,
        show=SHOW,
        equivalence=1.0,
        description=f"{description}; ten searches; K = 5",
        claims=[claim for loss in _TITLES for claim in _claims(loss, arms)],
    )


def _regime(kind: str, images: int, dataset: str, options: Mapping[str, Scalar]) -> Regime:
    noise = () if kind == _CLEAN else (LabelNoise(0.8),)
    groups = {"superclasses": False} if kind == _ALL else {}
    return Regime(f"{kind}-images-{images}", dataset, (PerClass(images), *noise), {**options, **groups})


def _claims(loss: str, arms: Sequence[Arm]) -> list[Claim]:
    """Return the claims on a loss, of those kinds of regime in which the study has it."""
    title, claim = _TITLES[loss], partial(Claim, source=_SOURCE)

    def gap(kind: str, metric: str, ours: str = loss, theirs: str = _ENTROPY) -> list[Contrast]:
        own = [arm for arm in arms if arm.loss.name == loss and arm.regime.name.startswith(kind)]
        columns = [f"{arm.regime.name}/{arm.model.label}" for arm in own]
        return [average_gap(columns, ours, theirs, metric)] if columns else []

    made = [
        claim(
            name=f"{loss}-ahead-with-{name}",
            text=f"With noise 0.8 among {among} the {title} is ahead of cross-entropy in top-5.",
            contrasts=contrasts,
        )
        for kind, name, among in (
            (_ALIKE, "wrong-labels", "look-alikes"),
            (_ALL, "labels-of-any-class", "all classes"),
        )
        if (contrasts := gap(kind, "top5"))
    ]
    if contrasts := gap(_CLEAN, "top5"):
        text = f"With right labels the {title} and cross-entropy are within one point in top-5."
        level = partial(claim, direction="within", tolerance=1.0)
        made.append(level(name=f"{loss}-level-with-right-labels", text=text, contrasts=contrasts))
        text = f"With right labels the {title} is behind cross-entropy in top-1."
        first = gap(_CLEAN, "top1", _ENTROPY, loss)
        made.append(claim(name=f"{loss}-costs-the-first-guess", text=text, contrasts=first))
    return made
