"""Does what a perceptron shows on letters hold for a convolutional network? Every loss is searched five times."""

from __future__ import annotations

from functools import partial

from topk_platform import Claim, LabelNoise, PerClass, Protocol, Regime, Study, grid
from topk_platform.specs import Condition
from topk_studies.claims import gaps
from topk_studies.letters import CONVNET, SHOW, TOPK, K, recipe
from topk_studies.letters_losses import balanced, others

__all__ = ["letters_convnet"]

_PROTOCOL = Protocol(searches=5)
_LOSSES = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge", "soft_topk_loss")
_ENTROPY, _SVM, _SOFT = "cross_entropy", "smooth_topk_svm", "soft_topk_loss"
_CASES: dict[str, tuple[int, tuple[Condition, ...]]] = {
    "noise-0.8-images-5": (100, (PerClass(5), LabelNoise(0.8))),
    "clean-20": (32, (PerClass(20),)),
    "noise-0.8": (20, (PerClass(50), LabelNoise(0.8))),
}
"""Epochs and conditions of each regime; the epochs are those of :func:`~topk_studies.letters.letters`."""


def letters_convnet() -> Study:
    """Return the study of the convolutional network: three regimes, four losses, five searches of each.

    A search has twelve trials, and each of the five choices is trained with two fresh seeds. In these regimes the
    perceptron was searched as often. The claims were written when its results were known, and of this network one
    search in ``clean-20`` and in ``noise-0.8``. ``clean-20`` ran last, when the results of the other two were known.

    Example:
        >>> study = letters_convnet()
        >>> len(study.arms), study.searches, study.trials
        (12, 5, 60)
    """
    losses = [loss for loss in balanced() + others() if loss.name in _LOSSES]
    return Study(
        name="letters_convnet",
        arms=[
            arm
            for name, (epochs, conditions) in _CASES.items()
            for arm in grid(
                [Regime(name, "letters", conditions)],
                [CONVNET],
                losses,
                k=K,
                recipe=recipe(epochs),
                protocol=_PROTOCOL,
            )
        ],
        topk=TOPK,
        trials=60,
        seeds=10,
        show=SHOW,
        description="letters of free typefaces, clean and with noise 0.8; a convnet; K = 5",
        claims=_claims(),
    )


def _claims() -> tuple[Claim, ...]:
    few, clean, noisy = (f"{regime}/{CONVNET.label}" for regime in _CASES)
    claim = partial(Claim, source="stated when the perceptron's results were known", tolerance=0.5)
    return (
        claim(
            name="ahead-with-five-images-and-noise",
            text="With five images and noise 0.8 the smooth SVM and the soft top-K loss are ahead in top-5.",
            contrasts=gaps([few], (_SVM, _SOFT), _ENTROPY, "top5"),
        ),
        claim(
            name="svm-ahead-with-noise",
            text="With noise 0.8 and 50 images the smooth SVM is ahead in top-5.",
            contrasts=gaps([noisy], _SVM, _ENTROPY, "top5"),
        ),
        claim(
            name="top5-losses-cost-the-first-guess",
            text="In all three regimes the smooth SVM and the soft top-K loss are behind in top-1.",
            contrasts=gaps([few, clean, noisy], _ENTROPY, (_SVM, _SOFT), "top1"),
        ),
    )
