"""How many trials does a search of a loss need? Letters, with 64 independent random draws of each loss's space."""

from __future__ import annotations

from topk_platform import LabelNoise, NoPruning, PerClass, Protocol, Random, Regime, Study, grid
from topk_studies.letters import MLP, SHOW, TOPK, K, recipe
from topk_studies.letters_losses import balanced

__all__ = ["letters_tuning"]

_LOSSES = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge")
_CLEAN = Regime("clean-20", "letters", (PerClass(20),))
_NOISY = Regime("noise-0.8", "letters", (PerClass(50), LabelNoise(0.8)))
_TRIALS = 65  # the paper's values and 64 draws: thirteen stacks of five networks
_SEEDS = 5


def letters_tuning() -> Study:
    """Return the study of what a budget buys: three losses in two regimes, each with 64 random draws of its space.

    The first trial has the paper's values; the 64 others are drawn independently, and none is stopped early. The
    regimes and the spaces are those of :func:`~topk_studies.letters_searches.letters_searches`, whose searches have 15
    trials.

    Example:
        >>> study = letters_tuning()
        >>> len(study.arms), study.trials, study.arms[0].protocol.sampler
        (6, 65, Random())
    """
    protocol = Protocol(sampler=Random(), pruner=NoPruning(), ensemble=5)
    losses = [loss for loss in balanced() if loss.name in _LOSSES]
    return Study(
        name="letters_tuning",
        arms=[
            *grid([_CLEAN], [MLP], losses, k=K, recipe=recipe(60), protocol=protocol),
            *grid([_NOISY], [MLP], losses, k=K, recipe=recipe(28), protocol=protocol),
        ],
        topk=TOPK,
        trials=_TRIALS,
        seeds=_SEEDS,
        show=SHOW,
        description="letters, 20 clean images a class or noise 0.8: 64 random draws of three losses; an MLP; K = 5",
    )
