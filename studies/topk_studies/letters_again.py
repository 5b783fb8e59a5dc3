"""The main finding on letters, asked again: its claims were written before this study ran.

Earlier studies formed the sentence "where most labels are wrong, the smooth SVM is ahead among five guesses". Here it
is asked of new data: the typefaces for training and for testing change their roles, labels are redrawn among
look-alikes or among all characters, and each claim is one contrast, averaged over its regimes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from topk_platform import Claim, LabelNoise, PerClass, Regime, Study, grid
from topk_studies.claims import average_gap, level
from topk_studies.letters import MLP, SHOW, TOGETHER, TOPK, TRIALS, K, recipe
from topk_studies.searched_losses import Firsts, searched

__all__ = ["letters_again"]

_EPOCHS = {5: 100, 50: 28}
"""Epochs by images of each class, as in the studies that formed the claims."""

_SEARCHES, _SEEDS = 10, 5
_ENTROPY, _SVM, _SOFT = "cross_entropy", "smooth_topk_svm", "soft_topk_loss"
_KINDS = ("alike", "clean", "all")
"""Labels redrawn among look-alikes with probability 0.8, right labels, labels redrawn among all characters."""


def letters_again() -> Study:
    """Return the study: three losses, ten searches each, with the typefaces exchanged.

    Regimes are called ``KIND-images-N``; see the module for the kinds.

    Example:
        >>> study = letters_again()
        >>> [arm.regime.name for arm in study.only("*/cross_entropy").arms]
        ['alike-images-5', 'alike-images-50', 'clean-images-5', 'clean-images-50', 'all-images-5', 'all-images-50']
        >>> study.claims[0].contrasts[0].weights["alike-images-5/mlp/smooth_topk_svm"]
        0.5
    """
    losses = [searched(name, Firsts()) for name in (_ENTROPY, _SVM, _SOFT)]
    protocol = replace(TOGETHER, searches=_SEARCHES)
    return Study(
        name="letters_again",
        arms=[
            arm
            for kind in _KINDS
            for images, epochs in _EPOCHS.items()
            for arm in grid(
                [_regime(kind, images)], [MLP], losses, k=K, recipe=recipe(epochs), protocol=protocol
            )
        ],
        topk=TOPK,
        trials=TRIALS * _SEARCHES,
        seeds=_SEEDS * _SEARCHES,
        show=SHOW,
        equivalence=1.0,
        description="letters, typefaces exchanged: noise 0.8 or none, 5 or 50 images; an MLP; ten searches; K = 5",
        claims=_claims(),
    )


def _regime(kind: str, images: int) -> Regime:
    options = {"exchanged": True, **({"superclasses": False} if kind == "all" else {})}
    noise = () if kind == "clean" else (LabelNoise(0.8),)
    return Regime(f"{kind}-images-{images}", "letters", (PerClass(images), *noise), options)


def _claims() -> tuple[Claim, ...]:
    source = "stated before the study was run, from letters and letters_map"
    claim = partial(Claim, source=source)
    alike, clean, everywhere = ([f"{kind}-images-{n}/{MLP.label}" for n in _EPOCHS] for kind in _KINDS)
    names = {_SVM: "smooth top-5 SVM", _SOFT: "soft top-5 loss"}
    return tuple(
        one
        for loss, title in names.items()
        for one in (
            claim(
                name=f"{loss}-ahead-with-wrong-labels",
                text=f"With noise 0.8 among look-alikes the {title} is ahead of cross-entropy in top-5.",
                contrasts=[average_gap(alike, loss, _ENTROPY, "top5")],
            ),
            claim(
                name=f"{loss}-ahead-with-labels-of-any-class",
                text=f"With noise 0.8 among all characters the {title} is ahead of cross-entropy in top-5.",
                contrasts=[average_gap(everywhere, loss, _ENTROPY, "top5")],
            ),
            level(
                f"{loss}-level-with-right-labels",
                f"With right labels the {title} and cross-entropy are within one point in top-5.",
                source,
                [average_gap(clean, loss, _ENTROPY, "top5")],
                tolerance=1.0,
            ),
            claim(
                name=f"{loss}-costs-the-first-guess",
                text=f"With right labels the {title} is behind cross-entropy in top-1.",
                contrasts=[average_gap(clean, _ENTROPY, loss, "top1")],
            ),
        )
    )
