"""The papers' losses with the parameters that each one searches; the searches start from a paper's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from topk_platform import Float, Loss
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.specs import Dimension, Scalar

__all__ = [
    "DECAYS",
    "EPSILON",
    "FOCUS",
    "GAMMA",
    "IMBALANCED_EPSILON",
    "MARGIN",
    "MAX_MARGIN",
    "RATES",
    "SCALE",
    "TAU",
    "TEMPERATURE",
    "Firsts",
    "balanced",
    "begun_at",
    "searched",
    "uneven",
]

Own = Mapping[str, tuple[Dimension, Scalar]]
"""A loss's own dimensions by name, each with its first value."""

# In narrower ranges a third of the configurations that the shipped findings chose had a value within 5 % of an end:
# learning rates at 3, weight decays at 1e-5 and 0.03, τ at 10, temperatures at 0.1 and 10, ...
RATES, DECAYS = Float(0.003, 10.0, log=True), Float(3e-6, 0.1, log=True)
"""The ranges of the learning rate and of the weight decay, the same for all losses of a study."""


def _range_of(loss: str, parameter: str) -> Dimension:
    """Return the range that the catalogue of losses has for a parameter."""
    return LOSS_CATALOGUE[loss].searched[parameter][0]


TEMPERATURE = _range_of("cross_entropy", "temperature")
TAU = _range_of("smooth_topk_svm", "tau")
EPSILON = _range_of("noised_topk_hinge", "epsilon")
IMBALANCED_EPSILON = _range_of("noised_imbalanced_topk_hinge", "epsilon")
MARGIN = _range_of("calibrated_topk_hinge", "margin")
GAMMA = _range_of("generalized_cross_entropy", "gamma")
FOCUS = _range_of("focal", "gamma")
MAX_MARGIN = _range_of("ldam", "max_margin")
SCALE = _range_of("ldam", "scale")
"""The ranges of the losses' own parameters: temperatures, noise, margins, exponents and scales."""

_SAMPLES = _range_of("noised_topk_hinge", "samples")  # None is the exact expectation


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
        noised_scale: The scale of the noised imbalanced hinge, which is not searched.
    """

    rate: float = 0.1
    decay: float = 1e-4
    rates: Float = RATES
    decays: Float = DECAYS
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

    All search the learning rate and the weight decay, and besides their own parameters: cross-entropy one, the noised
    hinge two.

    Example:
        >>> {loss.name: sorted(loss.space)[:2] for loss in balanced(Firsts())}["noised_topk_hinge"]
        ['epsilon', 'learning_rate']
        >>> sorted(balanced(Firsts())[0].space)
        ['learning_rate', 'temperature', 'weight_decay']
    """
    temperature: Own = {"temperature": (TEMPERATURE, 1.0)}
    noise: Own = {"epsilon": (EPSILON, at.epsilon), "samples": (_SAMPLES, at.samples)}
    return [
        searched("cross_entropy", at, temperature),
        searched("smooth_topk_svm", at, {"tau": (TAU, at.tau)}),
        searched("noised_topk_hinge", at, noise),
        searched("calibrated_topk_hinge", at, {"margin": (MARGIN, 1.0)}),
        searched("topk_transition", at),
        searched("topk_grouping", at),
    ]


def uneven(at: Firsts) -> list[Loss]:
    """Return the further losses that garcin2022 compares on long tails: focal, LDAM and the noised imbalanced hinge.

    The noised imbalanced hinge has four parameters, of which B = 5 and the scale stay as in the paper: no loss of a
    study searches more than one dimension more than cross-entropy.

    Example:
        >>> [loss.name for loss in uneven(Firsts())], len(uneven(Firsts())[-1].space)
        (['focal', 'ldam', 'noised_imbalanced_topk_hinge'], 4)
    """
    noise: Own = {"epsilon": (IMBALANCED_EPSILON, 0.01), "max_margin": (MAX_MARGIN, 0.2)}
    noised = searched("noised_imbalanced_topk_hinge", at, noise, head="cosine")
    return [
        searched("focal", at, {"gamma": (FOCUS, 2.0)}),
        searched(
            "ldam", at, {"max_margin": (MAX_MARGIN, at.margin), "scale": (SCALE, at.scale)}, head="cosine"
        ),
        replace(noised, fixed={"samples": 5, "scale": at.noised_scale}),
    ]
