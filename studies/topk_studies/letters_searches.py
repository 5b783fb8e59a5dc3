"""Which loss wins on letters if every search is repeated? Seven regimes, each loss searched five times."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from topk_platform import Arm, Claim, LabelNoise, LongTail, Loss, PerClass, Regime, Study, grid
from topk_platform.specs import EMA, Condition
from topk_studies.claims import gaps, level
from topk_studies.letters import MLP, SHOW, TOGETHER, TOPK, K, recipe
from topk_studies.letters_losses import balanced, others, uneven
from topk_studies.searched_losses import Firsts, searched

__all__ = ["letters_searches"]

SEARCHES = 5
"""Independent searches of every arm, each of 15 trials and with two fresh seeds."""

_SOURCE = "stated before the study was run"
_REGULARISED = ("label_smoothing", "cross_entropy-averaged")
_TOPK_LOSSES = (
    "smooth_topk_svm",
    "noised_topk_hinge",
    "calibrated_topk_hinge",
    "topk_transition",
    "soft_topk_loss",
)
_LEFT_OUT = ("topk_grouping", "autkc")
"""Losses that led in no regime of :func:`~topk_studies.letters.letters`; leaving them out saves a fifth of the time."""

_FEW_AND_NOISY = "noise-0.8-images-5"
"""The regime of the map in which top-5 losses led by most after one search."""
_NOISY = ("noise-0.4", "noise-0.8")
_FEW = ("clean-5", "clean-20")


def letters_searches() -> Study:
    """Return the study that repeats searches: what of :func:`~topk_studies.letters.letters` depends on luck?

    Seven regimes, a perceptron. Each loss is searched five times, and each of the five chosen configurations is trained
    with two fresh seeds. So intervals cover the search, and differences between losses are tested. Cross-entropy is
    also there with label smoothing, whose ε is searched, and under label noise with averaged weights. Its claims were
    written before the regimes that they are about ran. ``noise-0.8-images-5`` was added when the six others had run,
    because the largest leads of an earlier map were there; no claim about the six changed.
    Balanced softmax was added when it had led on the long tail of :func:`~topk_studies.photos.photos_tail`.

    Example:
        >>> study = letters_searches()
        >>> len(study.arms), study.searches, study.trials
        (63, 5, 75)
        >>> [arm.loss.label for arm in study.only("clean-5/*").arms][:3]
        ['cross_entropy', 'label_smoothing', 'smooth_topk_svm']
    """
    return Study(
        name="letters_searches",
        arms=[arm for regime, epochs in _regimes() for arm in _arms(regime, epochs)],
        topk=TOPK,
        trials=15 * SEARCHES,
        seeds=2 * SEARCHES,
        show=SHOW,
        equivalence=1.0,
        description="letters of free typefaces, seven regimes: every loss searched five times; an MLP; K = 5",
        claims=_claims(),
    )


def _regimes() -> list[tuple[Regime, int]]:
    def regime(name: str, *conditions: Condition) -> Regime:
        return Regime(name, "letters", conditions)

    return [
        (regime("noise-0.8", PerClass(50), LabelNoise(0.8)), 28),
        (regime("clean-5", PerClass(5)), 100),
        (regime("long-tail", LongTail(50)), 40),
        (regime("noise-0.4", PerClass(50), LabelNoise(0.4)), 28),
        (regime("clean-20", PerClass(20)), 60),
        (regime("clean-100", PerClass(100)), 20),
        (regime(_FEW_AND_NOISY, PerClass(5), LabelNoise(0.8)), 100),
    ]


def _losses(regime: Regime) -> list[Loss]:
    entropy, *rest = balanced()
    further = [loss for loss in rest + others() if loss.name not in _LEFT_OUT]
    tail = [*uneven(), searched("balanced_softmax", Firsts())] if regime.name == "long-tail" else []
    return [entropy, searched("label_smoothing", Firsts()), *further, *tail]


def _arms(regime: Regime, epochs: int) -> list[Arm]:
    protocol = replace(TOGETHER, searches=SEARCHES)
    arms = grid([regime], [MLP], _losses(regime), k=K, recipe=recipe(epochs), protocol=protocol)
    return [*arms, _averaged(arms[0])] if regime.name in (*_NOISY, _FEW_AND_NOISY) else [*arms]


def _averaged(plain: Arm) -> Arm:
    """Return the arm with averaged weights; its networks train one at a time, since stacks keep no averages."""
    loss = replace(plain.loss, label="cross_entropy-averaged")
    protocol = replace(plain.protocol, ensemble=1)
    return replace(plain, loss=loss, recipe=replace(plain.recipe, average=EMA()), protocol=protocol)


def _claims() -> tuple[Claim, ...]:
    claim = partial(Claim, source=_SOURCE, tolerance=0.5)
    return (
        claim(
            name="svm-ahead-with-noise",
            text="With wrong labels the smooth top-5 SVM is ahead of cross-entropy in top-5.",
            contrasts=gaps(_at(*_NOISY), "smooth_topk_svm", "cross_entropy", "top5"),
        ),
        claim(
            name="svm-ahead-with-few-images",
            text="With few images the smooth top-5 SVM is ahead of cross-entropy in top-5.",
            contrasts=gaps(_at(*_FEW), "smooth_topk_svm", "cross_entropy", "top5"),
        ),
        claim(
            name="uneven-margins-ahead-on-the-tail",
            text="On a long tail LDAM and the noised imbalanced hinge are ahead of cross-entropy in top-5.",
            contrasts=gaps(
                _at("long-tail"), ["ldam", "noised_imbalanced_topk_hinge"], "cross_entropy", "top5"
            ),
        ),
        claim(
            name="balanced-softmax-ahead-on-the-tail",
            text="On a long tail balanced softmax is ahead of cross-entropy in top-5.",
            contrasts=gaps(_at("long-tail"), "balanced_softmax", "cross_entropy", "top5"),
            source="stated before the arm was run, from photos_tail",
        ),
        claim(
            name="top-1-is-the-price",
            text="In six regimes the top-5 losses are behind cross-entropy in top-1.",
            contrasts=gaps(
                _at(*(regime.name for regime, _ in _regimes() if regime.name != _FEW_AND_NOISY)),
                "cross_entropy",
                _TOPK_LOSSES,
                "top1",
            ),
        ),
        claim(
            name="ahead-with-few-images-and-very-wrong-labels",
            text="With five images a class and noise 0.8 the smooth top-5 SVM and the noised top-5 hinge are ahead of "
            "cross-entropy in top-5.",
            contrasts=gaps(
                _at(_FEW_AND_NOISY), ["smooth_topk_svm", "noised_topk_hinge"], "cross_entropy", "top5"
            ),
        ),
        level(
            "level-with-many-clean-images",
            "With 100 clean images of each class the top-5 losses are level with cross-entropy in top-5.",
            _SOURCE,
            gaps(_at("clean-100"), _TOPK_LOSSES, "cross_entropy", "top5"),
            tolerance=1.0,
        ),
        level(
            "level-with-regularised-cross-entropy",
            "With wrong labels the smooth top-5 SVM is level with regularised cross-entropy in top-5.",
            _SOURCE,
            gaps(_at(*_NOISY), "smooth_topk_svm", _REGULARISED, "top5"),
            tolerance=1.0,
        ),
    )


def _at(*regimes: str) -> list[str]:
    return [f"{regime}/{MLP.label}" for regime in regimes]
