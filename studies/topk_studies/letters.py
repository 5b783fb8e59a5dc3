"""Which loss has the right character among five guesses? Letters of free typefaces, by regime."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from topk_platform import (
    Arm,
    Claim,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    PerClass,
    Protocol,
    Recipe,
    Regime,
    Study,
    grid,
)
from topk_platform.specs import EMA, Condition
from topk_studies.claims import gaps
from topk_studies.searched_losses import drawn, searched

__all__ = [
    "CONVNET",
    "MLP",
    "SHOW",
    "TOGETHER",
    "TOPK",
    "TRIALS",
    "K",
    "letters",
    "letters_quick",
    "recipe",
    "searched_on_letters",
]

K = 5
"""K: as many guesses as most groups of look-alikes have characters."""

MLP = Model("mlp", {"hidden": 128})
"""Trained in stacks of five."""

CONVNET = Model("convnet", {"width": 8})
"""A small convolutional network, trained from pixels."""

TOGETHER = Protocol(ensemble=5)
"""Search trials and confirmations train five at a time, as one stack of networks."""

TRIALS = 20
"""Trials of every search: five for each dimension of the loss that has most."""

TOPK = (1, 2, 3, 5, 10)
"""The K whose accuracies are recorded."""

SHOW = ("top1", "top5")
"""The metrics that a table shows."""

_SEARCHES = 5
"""Independent searches of every arm; each chosen configuration is trained with two fresh seeds."""

_LOSSES = (
    "cross_entropy",
    "label_smoothing",
    "smooth_topk_svm",
    "noised_topk_hinge",
    "calibrated_topk_hinge",
    "topk_transition",
    "generalized_cross_entropy",
    "soft_topk_loss",
)
"""Without top-K grouping and AUTKC, which led in no regime when each was searched once."""

_UNEVEN = ("focal", "ldam", "noised_imbalanced_topk_hinge", "balanced_softmax")
_TOPK_LOSSES = (
    "smooth_topk_svm",
    "noised_topk_hinge",
    "calibrated_topk_hinge",
    "topk_transition",
    "soft_topk_loss",
)
_QUICK_SIZE, _QUICK_TRIALS = 4, 8
_QUICK_EPOCHS = {"long-tail": 30, "noise-0.8": 28}
_FEW_AND_NOISY = "noise-0.8-images-5"
_NOISY, _FEW = ("noise-0.4", "noise-0.8"), ("clean-5", "clean-20")
_EPOCHS = {
    "noise-0.8": 28,
    "clean-5": 100,
    "long-tail": 40,
    "noise-0.4": 28,
    "clean-20": 60,
    "clean-100": 20,
    _FEW_AND_NOISY: 100,
}
"""Epochs by regime, in the order in which the regimes run; fewer images need more epochs."""


def recipe(epochs: int) -> Recipe:
    """Return the recipe for letters, with warm-up and clipped gradients, without which hinges leave ReLUs dead.

    Validation is scored four times, including at the rungs where searches are pruned.

    Example:
        >>> [epoch for epoch in range(1, 41) if recipe(40).evaluates(epoch)]
        [10, 20, 30, 40]
    """
    return Recipe(epochs=epochs, warmup=epochs / 20, clip_norm=1.0, evaluate_every=max(epochs // 4, 1))


def _regime(name: str) -> Regime:
    conditions: dict[str, tuple[Condition, ...]] = {
        "clean-5": (PerClass(5),),
        "clean-20": (PerClass(20),),
        "clean-100": (PerClass(100),),
        "noise-0.4": (PerClass(50), LabelNoise(0.4)),
        "noise-0.8": (PerClass(50), LabelNoise(0.8)),
        _FEW_AND_NOISY: (PerClass(5), LabelNoise(0.8)),
        "long-tail": (LongTail(50),),
    }
    return Regime(name, "letters", conditions[name])


def searched_on_letters(*names: str) -> list[Loss]:
    """Return losses that are searched; of the noised hinge, any number of samples up to 100.

    Example:
        >>> searched_on_letters("cross_entropy", "noised_topk_hinge")[1].space["samples"]
        Int(low=1, high=100, log=True)
    """
    return [drawn() if name == "noised_topk_hinge" else searched(name) for name in names]


def letters() -> Study:
    """Return the study of letters: seven regimes, a perceptron, every loss searched five times with the same budget.

    Clean with 5, 20 and 100 images of each class; 50 of each with labels redrawn among look-alikes with probability 0.4
    and 0.8; five of each with 0.8; and a long tail from 150 images to 3, on which the first letters of the alphabet are
    frequent and the digits rare. Each of the five chosen configurations is trained with two fresh seeds, so intervals
    cover the search, and differences between losses are tested. Cross-entropy is also there with label smoothing, whose
    ε is searched, and under label noise with averaged weights. Its claims were written before the regimes and arms that
    they are about ran.

    Example:
        >>> study = letters()
        >>> len(study.arms), study.searches, study.trials
        (63, 5, 100)
        >>> [arm.loss.label for arm in study.only("clean-5/*").arms][:3]
        ['cross_entropy', 'label_smoothing', 'smooth_topk_svm']
    """
    return Study(
        name="letters",
        arms=[arm for regime in _EPOCHS for arm in _searched_arms(regime)],
        topk=TOPK,
        trials=TRIALS * _SEARCHES,
        seeds=2 * _SEARCHES,
        show=SHOW,
        equivalence=1.0,
        description="letters of free typefaces, seven regimes: every loss searched five times; an MLP; K = 5",
        claims=_claims(),
    )


def _searched_arms(regime: str) -> list[Arm]:
    losses = searched_on_letters(*_LOSSES, *(_UNEVEN if regime == "long-tail" else ()))
    protocol = replace(TOGETHER, searches=_SEARCHES)
    arms = grid([_regime(regime)], [MLP], losses, k=K, recipe=recipe(_EPOCHS[regime]), protocol=protocol)
    return [*arms, _averaged(arms[0])] if regime in (*_NOISY, _FEW_AND_NOISY) else [*arms]


def _averaged(plain: Arm) -> Arm:
    """Return the arm with averaged weights; its networks train one at a time, since stacks keep no averages."""
    loss = replace(plain.loss, label="cross_entropy-averaged")
    protocol = replace(plain.protocol, ensemble=1)
    return replace(plain, loss=loss, recipe=replace(plain.recipe, average=EMA()), protocol=protocol)


def _claims() -> tuple[Claim, ...]:
    claim = partial(Claim, source="stated before the study was run", tolerance=0.5)
    level = partial(claim, direction="within", tolerance=1.0)
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
                _at(*(regime for regime in _EPOCHS if regime != _FEW_AND_NOISY)),
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
            name="level-with-many-clean-images",
            text="With 100 clean images of each class the top-5 losses are level with cross-entropy in top-5.",
            contrasts=gaps(_at("clean-100"), _TOPK_LOSSES, "cross_entropy", "top5"),
        ),
        level(
            name="level-with-regularised-cross-entropy",
            text="With wrong labels the smooth top-5 SVM is level with regularised cross-entropy in top-5.",
            contrasts=gaps(
                _at(*_NOISY), "smooth_topk_svm", ("label_smoothing", "cross_entropy-averaged"), "top5"
            ),
        ),
    )


def _at(*regimes: str) -> list[str]:
    return [f"{regime}/{MLP.label}" for regime in regimes]


def letters_quick() -> Study:
    """Return the study that takes minutes and ends with a tested sentence: two regimes, searched five times, an MLP.

    On a long tail (150 images of the most frequent character, 3 of the rarest) balanced softmax and the smooth top-5
    SVM stand beside cross-entropy. Where four of five labels are redrawn among look-alikes, the SVM does.

    Example:
        >>> [arm.loss.label for arm in letters_quick().arms]
        ['cross_entropy', 'balanced_softmax', 'smooth_topk_svm', 'cross_entropy', 'smooth_topk_svm']
    """
    losses = searched_on_letters("cross_entropy", "balanced_softmax", "smooth_topk_svm")
    protocol = Protocol(ensemble=_QUICK_SIZE, searches=_SEARCHES)
    regimes = {"long-tail": losses, "noise-0.8": [losses[0], losses[2]]}
    return Study(
        name="letters_quick",
        arms=[
            arm
            for name, own in regimes.items()
            for arm in grid(
                [_regime(name)], [MLP], own, k=K, recipe=recipe(_QUICK_EPOCHS[name]), protocol=protocol
            )
        ],
        topk=TOPK,
        trials=_QUICK_TRIALS * _SEARCHES,
        seeds=_QUICK_SIZE * _SEARCHES,
        show=SHOW,
        description="letters of free typefaces, a long tail or noise 0.8; an MLP; five searches each; K = 5",
    )
