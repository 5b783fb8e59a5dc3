"""The papers' losses with the parameters that each one searches; the searches start from a paper's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from topk_platform import Choice, Float, Loss
from topk_platform.specs import Dimension, Scalar

__all__ = ["Firsts", "balanced", "begun_at", "searched", "uneven"]

Own = Mapping[str, tuple[Dimension, Scalar]]
"""A loss's own dimensions by name, each with its first value."""

_SAMPLES = Choice((None, 1, 3, 5, 10, 30))  # None is the exact expectation
_RATES, _DECAYS = Float(0.003, 3.0, log=True), Float(1e-5, 1e-2, log=True)
_MARGIN = Float(0.05, 1.0, log=True)
_SCALE = Float(5.0, 100.0, log=True)


@dataclass(frozen=True)
class Firsts:
    """The first values of the searches in a regime, and the ranges that all its losses share.

    Args:
        rate: The first learning rate.
        decay: The first weight decay.
        rates: The range of the learning rate.
        decays: The range of the weight decay.
        tau: The first τ of the smooth top-K SVM.
        epsilon: The first ε of the noised top-K hinge.
        samples: The first B of the noised top-K hinge.
        margin: The first value of LDAM's largest margin.
        scale: The first scale of LDAM.
        noised_scale: The first scale of the noised imbalanced hinge.
    """

    rate: float = 0.1
    decay: float = 1e-4
    rates: Float = _RATES
    decays: Float = _DECAYS
    tau: float = 1.0
    epsilon: float = 0.2
    samples: int = 10
    margin: float = 0.5
    scale: float = 30.0
    noised_scale: float = 50.0


def searched(name: str, at: Firsts, own: Own | None = None, head: str = "linear") -> Loss:
    """Return a loss that searches the learning rate, the weight decay and its own parameters.

    Args:
        name: The loss.
        at: The first values and the ranges of learning rate and weight decay.
        own: The loss's own dimensions.
        head: See :class:`topk_platform.Loss`.

    Example:
        >>> searched("focal", Firsts(), {"gamma": (Float(0.1, 5.0), 2.0)}).first
        {'learning_rate': 0.1, 'weight_decay': 0.0001, 'gamma': 2.0}
    """
    both: Own = {
        "learning_rate": (at.rates, at.rate),
        "weight_decay": (at.decays, at.decay),
        **(own or {}),
    }
    space = {parameter: dimension for parameter, (dimension, _) in both.items()}
    return Loss(name, space, {parameter: first for parameter, (_, first) in both.items()}, head=head)


def begun_at(loss: Loss, **values: Scalar) -> Loss:
    """Return the same loss with other first values for some of its parameters.

    Example:
        >>> begun_at(searched("topk_transition", Firsts()), learning_rate=1.0).first["learning_rate"]
        1.0
    """
    return replace(loss, first={**loss.first, **values})


def balanced(at: Firsts) -> list[Loss]:
    """Return the losses for balanced data, cross-entropy first.

    Cross-entropy searches as many dimensions as the other loss with the most.

    Example:
        >>> {loss.name: sorted(loss.space)[:2] for loss in balanced(Firsts())}["noised_topk_hinge"]
        ['epsilon', 'learning_rate']
        >>> max(len(loss.space) for loss in balanced(Firsts())) == len(balanced(Firsts())[0].space)
        True
    """
    temperature: Own = {"temperature": (Float(0.1, 10.0, log=True), 1.0), "momentum": (Float(0.5, 0.95), 0.9)}
    noise: Own = {"epsilon": (Float(0.01, 10.0, log=True), at.epsilon), "samples": (_SAMPLES, at.samples)}
    return [
        searched("cross_entropy", at, temperature),
        searched("smooth_topk_svm", at, {"tau": (Float(0.01, 10.0, log=True), at.tau)}),
        searched("noised_topk_hinge", at, noise),
        searched("calibrated_topk_hinge", at, {"margin": (Float(0.1, 10.0, log=True), 1.0)}),
        searched("topk_transition", at),
        searched("topk_grouping", at),
    ]


def uneven(at: Firsts) -> list[Loss]:
    """Return the further losses that garcin2022 compares on long tails: focal, LDAM and the noised imbalanced hinge.

    The noised imbalanced hinge searches two dimensions more than cross-entropy, in the same number of trials.

    Example:
        >>> [loss.name for loss in uneven(Firsts())], len(uneven(Firsts())[-1].space)
        (['focal', 'ldam', 'noised_imbalanced_topk_hinge'], 6)
    """
    noise: Own = {"epsilon": (Float(0.001, 1.0, log=True), 0.01), "samples": (_SAMPLES, 5)}
    margins: Own = {"max_margin": (_MARGIN, 0.2), "scale": (_SCALE, at.noised_scale)}
    return [
        searched("focal", at, {"gamma": (Float(0.1, 5.0, log=True), 2.0)}),
        searched(
            "ldam", at, {"max_margin": (_MARGIN, at.margin), "scale": (_SCALE, at.scale)}, head="cosine"
        ),
        searched("noised_imbalanced_topk_hinge", at, {**noise, **margins}, head="cosine"),
    ]
