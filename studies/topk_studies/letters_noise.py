"""Which loss helps most against wrong labels, if all are searched alike? Letters, with label noise 0.4 and 0.8."""

from __future__ import annotations

from topk_platform import Arm, LabelNoise, Loss, PerClass, Protocol, Regime, Study, grid
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_studies.letters import MLP, SHOW, TOGETHER, TOPK, TRIALS, K, recipe
from topk_studies.searched_losses import Firsts, searched

__all__ = ["letters_noise_losses"]

_LOSSES = (
    "cross_entropy",
    "smooth_topk_svm",
    "label_smoothing",
    "mean_absolute_error",
    "generalized_cross_entropy",
    "symmetric_cross_entropy",
    "active_passive_loss",
    "asymmetric_loss",
    "logit_clip",
)
_REGIMES = [Regime(f"noise-{p}", "letters", (PerClass(50), LabelNoise(p))) for p in (0.4, 0.8)]
_IN_TURN = Protocol(
    width=TOGETHER.ensemble
)  # trials of a loss that trains no ensemble know as little of one another
_EPOCHS, _SEEDS = 28, 5


def letters_noise_losses() -> Study:
    """Return the study of the losses against label noise: each searches its own parameters, as the others do theirs.

    Every loss has the same ranges of the learning rate and of the weight decay, the ranges of its own parameters that
    its page names, and the same number of trials, beginning with its paper's values. Wrong labels are drawn within
    groups of look-alikes. Early-learning regularisation trains one network at a time; its search sees the results of
    other trials as late as those of the losses that train five networks together.

    Example:
        >>> study = letters_noise_losses()
        >>> len(study.arms), sorted(study.arms[6].loss.space)
        (20, ['alpha', 'beta', 'learning_rate', 'weight_decay'])
    """
    return Study(
        name="letters_noise_losses",
        arms=(
            *_arms([_searched(name) for name in _LOSSES], TOGETHER),
            *_arms([_searched("early_learning")], _IN_TURN),
        ),
        topk=TOPK,
        trials=TRIALS,
        seeds=_SEEDS,
        show=SHOW,
        description="letters, noise 0.4 and 0.8: losses against label noise, all searched alike; an MLP; K = 5",
    )


def _arms(losses: list[Loss], protocol: Protocol) -> tuple[Arm, ...]:
    return grid(_REGIMES, [MLP], losses, k=K, recipe=recipe(_EPOCHS), protocol=protocol)


def _searched(name: str) -> Loss:
    """Return a loss and its space. The active-passive loss keeps its usual passive part and searches two weights."""
    own = {
        parameter: given
        for parameter, given in LOSS_CATALOGUE[name].searched.items()
        if parameter != "passive"
    }
    return searched(name, Firsts(), own)
