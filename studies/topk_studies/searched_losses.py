"""The papers' losses with the parameters that each one searches; the searches start from a paper's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from topk_platform import Float, Int, Loss
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.specs import Dimension, Scalar

__all__ = ["DECAYS", "RATES", "Firsts", "Own", "balanced", "begun_at", "drawn", "searched", "uneven"]

Own = Mapping[str, tuple[Dimension, Scalar]]
"""A loss's own dimensions by name, each with its first value."""

# In narrower ranges a third of the configurations that the shipped findings chose had a value within 5 % of an end:
# learning rates at 3, weight decays at 1e-5 and 0.03, τ at 10, temperatures at 0.1 and 10, ...
RATES, DECAYS = Float(0.003, 10.0, log=True), Float(3e-6, 0.1, log=True)
"""The ranges of the learning rate and of the weight decay, the same for all losses of a study."""

_IMBALANCED = "noised_imbalanced_topk_hinge"
_ON_COSINES = ("ldam", _IMBALANCED)


@dataclass(frozen=True)
class Firsts:
    """The first values of the searches in a regime, and the ranges that all its losses share.

    Args:
        rate: The first learning rate.
        decay: The first weight decay.
        rates: The range of the learning rate.
        decays: The range of the weight decay.
        tau: The first τ of the smooth top-K SVM in :func:`balanced`.
        epsilon: The first ε of the noised top-K hinge in :func:`balanced`.
        margin: The first value of LDAM's largest margin in :func:`uneven`.
        scale: The first scale of LDAM in :func:`uneven`.
        noised_scale: The scale of the noised imbalanced hinge, which is not searched.
    """

    rate: float = 0.1
    decay: float = 1e-4
    rates: Float = RATES
    decays: Float = DECAYS
    tau: float = 1.0
    epsilon: float = 0.2
    margin: float = 0.5
    scale: float = 30.0
    noised_scale: float = 50.0


def searched(name: str, at: Firsts, own: Own | None = None) -> Loss:
    """Return a loss that searches the learning rate, the weight decay and its own parameters.

    LDAM and the noised imbalanced hinge have cosine heads. The latter's B = 5 and its scale stay as in the paper: no
    loss of a study searches more than two dimensions more than cross-entropy.

    Args:
        name: The loss.
        at: The first values and the ranges of learning rate and weight decay.
        own: The loss's own dimensions; those of the catalogue by default.

    Example:
        >>> searched("focal", Firsts()).first
        {'learning_rate': 0.1, 'weight_decay': 0.0001, 'gamma': 2.0}
    """
    dimensions: Own = {
        "learning_rate": (at.rates, at.rate),
        "weight_decay": (at.decays, at.decay),
        **(LOSS_CATALOGUE[name].searched if own is None else own),
    }
    space = {parameter: dimension for parameter, (dimension, _) in dimensions.items()}
    first = {parameter: value for parameter, (_, value) in dimensions.items()}
    fixed = {"samples": 5, "scale": at.noised_scale} if name == _IMBALANCED else {}
    return Loss(name, space, first, fixed, "cosine" if name in _ON_COSINES else "linear")


def drawn(at: Firsts) -> Loss:
    """Return the noised hinge whose B is searched among all whole numbers up to 100.

    Example:
        >>> drawn(Firsts()).space["samples"]
        Int(low=1, high=100, log=True)
    """
    own = {**LOSS_CATALOGUE["noised_topk_hinge"].searched, "samples": (Int(1, 100, log=True), 10)}
    return searched("noised_topk_hinge", at, own)


def begun_at(loss: Loss, **values: Scalar) -> Loss:
    """Return the same loss with other first values for some of its parameters.

    Example:
        >>> begun_at(searched("topk_transition", Firsts()), learning_rate=1.0).first["learning_rate"]
        1.0
    """
    return replace(loss, first={**loss.first, **values})


def balanced(at: Firsts) -> list[Loss]:
    """Return the losses for balanced data, cross-entropy first.

    All search the learning rate and the weight decay, and besides their own parameters: cross-entropy one, the noised
    hinge two.

    Example:
        >>> {loss.name: sorted(loss.space)[:2] for loss in balanced(Firsts())}["noised_topk_hinge"]
        ['epsilon', 'learning_rate']
        >>> sorted(balanced(Firsts())[0].space)
        ['learning_rate', 'temperature', 'weight_decay']
    """
    return [
        searched("cross_entropy", at),
        begun_at(searched("smooth_topk_svm", at), tau=at.tau),
        begun_at(searched("noised_topk_hinge", at), epsilon=at.epsilon),
        *(searched(name, at) for name in ("calibrated_topk_hinge", "topk_transition", "topk_grouping")),
    ]


def uneven(at: Firsts) -> list[Loss]:
    """Return the further losses that garcin2022 compares on long tails: focal, LDAM and the noised imbalanced hinge.

    Example:
        >>> [loss.name for loss in uneven(Firsts())], len(uneven(Firsts())[-1].space)
        (['focal', 'ldam', 'noised_imbalanced_topk_hinge'], 4)
    """
    ldam = begun_at(searched("ldam", at), max_margin=at.margin, scale=at.scale)
    return [searched("focal", at), ldam, searched(_IMBALANCED, at)]
