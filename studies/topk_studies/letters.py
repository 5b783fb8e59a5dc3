"""Which loss has the right character among five guesses? Letters of free typefaces, by regime."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from topk_platform import (
    Arm,
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
from topk_platform.specs import Condition
from topk_studies.letters_losses import as_published, balanced, others, uneven

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
]

K = 5
"""K: as many guesses as most groups of look-alikes have characters."""

MLP = Model("mlp", {"hidden": 128})
"""Trained in stacks of five."""

CONVNET = Model("convnet", {"width": 8})
"""Trained one at a time."""

TOGETHER = Protocol(ensemble=5)
"""Search trials and confirmations train five at a time, as one stack of networks."""

TRIALS = 15
"""Search trials of every arm."""

TOPK = (1, 2, 3, 5, 10)
"""The K whose accuracies are recorded."""

SHOW = ("top1", "top5")
"""The metrics that a table shows."""

_ALONE = Protocol()
_QUICK = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge")


def recipe(epochs: int) -> Recipe:
    """Return the recipe for letters, with warm-up and clipped gradients, without which hinges leave ReLUs dead.

    Validation is scored four times, including at the rungs where searches are pruned.

    Example:
        >>> [epoch for epoch in range(1, 41) if recipe(40).evaluates(epoch)]
        [10, 20, 30, 40]
    """
    return Recipe(epochs=epochs, warmup=epochs / 20, clip_norm=1.0, evaluate_every=max(epochs // 4, 1))


class _Case(NamedTuple):
    """A regime, and how many epochs each network trains on it (0: not at all); fewer images need more epochs."""

    regime: Regime
    mlp: int
    convnet: int


def _case(name: str, mlp: int, convnet: int, *conditions: Condition) -> _Case:
    return _Case(Regime(name, "letters", conditions), mlp, convnet)


def _cases() -> dict[str, _Case]:
    cases = [
        _case("clean-5", 100, 0, PerClass(5)),
        _case("clean-20", 60, 32, PerClass(20)),
        _case("clean-100", 20, 0, PerClass(100)),
        _case("noise-0.4", 28, 0, PerClass(50), LabelNoise(0.4)),
        _case("noise-0.8", 28, 20, PerClass(50), LabelNoise(0.8)),
        _case("long-tail", 40, 20, LongTail(50)),
    ]
    return {case.regime.name: case for case in cases}


def _with_published(losses: Iterable[Loss]) -> list[Loss]:
    return [kind for loss in losses for kind in (loss, as_published(loss))]


def _arms(case: _Case, losses: Iterable[Loss], convnet: bool = True) -> tuple[Arm, ...]:
    losses = list(losses)
    arms = grid([case.regime], [MLP], losses, k=K, recipe=recipe(case.mlp), protocol=TOGETHER)
    if convnet and case.convnet:
        arms += grid([case.regime], [CONVNET], losses, k=K, recipe=recipe(case.convnet), protocol=_ALONE)
    return arms


def letters() -> Study:
    """Return the study of letters: six regimes, two networks, the papers' losses and others, searched and as published.

    Clean with 5, 20 and 100 images of each class; 50 of each with labels noised among look-alikes, with probability 0.4
    and 0.8; and a long tail from 150 images to 3. Labels that end in ``-papers`` have the papers' values, unsearched.
    On the tail the first letters of the alphabet are frequent and the digits rare. A convolutional network, whose
    trainings take five times as long, is in three of the regimes; ``--only '*/mlp/*'`` is the part of the perceptron.

    Example:
        >>> len(letters().arms), len(letters().only("*/mlp/*").arms)
        (174, 114)
    """
    cases = _cases()
    arms = [arm for case in cases.values() for arm in _arms(case, _with_published(balanced() + others()))]
    return Study(
        name="letters",
        arms=(*arms, *_arms(cases["long-tail"], _with_published(uneven()))),
        topk=TOPK,
        trials=TRIALS,
        show=SHOW,
        description="letters of free typefaces: few, noisy or long-tailed; MLP, convnet; searched or not; K = 5",
    )


def letters_quick() -> Study:
    """Return the part of :func:`letters` that takes minutes: three losses, searched and as published, on an MLP.

    Its regimes are 20 clean images per class and label noise 0.8, where the papers' values and searched values tell
    different stories.

    Example:
        >>> [arm.loss.label for arm in letters_quick().arms][:3]
        ['cross_entropy', 'cross_entropy-papers', 'smooth_topk_svm']
    """
    losses = _with_published(loss for loss in balanced() if loss.name in _QUICK)
    cases = _cases()
    arms = [arm for name in ("clean-20", "noise-0.8") for arm in _arms(cases[name], losses, convnet=False)]
    return Study(
        name="letters_quick",
        arms=arms,
        topk=TOPK,
        trials=TRIALS,
        show=SHOW,
        description="letters of free typefaces, 20 clean images a class or noise 0.8; an MLP; searched or not; K = 5",
    )
