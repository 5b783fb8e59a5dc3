"""The papers' losses with the parameters that each one searches; the searches start from a paper's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from topk_platform import Float, Int, Loss
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.specs import Dimension, Scalar

__all__ = ["SHARED", "Searched", "begun_at", "drawn", "searched"]

Searched = Mapping[str, tuple[Dimension, Scalar]]
"""Ranges by the parameter's name, each with its first value."""

# In narrower ranges a third of the configurations that the shipped findings chose had a value within 5 % of an end:
# learning rates at 3, weight decays at 1e-5 and 0.03, τ at 10, temperatures at 0.1 and 10, ...
SHARED: Searched = {
    "learning_rate": (Float(0.003, 10.0, log=True), 0.1),
    "weight_decay": (Float(3e-6, 0.1, log=True), 1e-4),
}
"""What every loss of a study searches besides its own parameters."""

_IMBALANCED = "noised_imbalanced_topk_hinge"
_ON_COSINES = ("ldam", _IMBALANCED)


def searched(name: str, shared: Searched = SHARED, own: Searched | None = None) -> Loss:
    """Return a loss that searches the learning rate, the weight decay and its own parameters.

    LDAM and the noised imbalanced hinge have cosine heads. The latter's B = 5 and its scale stay as in the paper: no
    loss of a study searches more than two dimensions more than cross-entropy.

    Args:
        name: The loss.
        shared: What it searches besides its own parameters.
        own: Its own parameters; those of the catalogue by default.

    Example:
        >>> searched("focal").first
        {'learning_rate': 0.1, 'weight_decay': 0.0001, 'gamma': 2.0}
    """
    dimensions = {**shared, **(LOSS_CATALOGUE[name].searched if own is None else own)}
    space = {parameter: dimension for parameter, (dimension, _) in dimensions.items()}
    first = {parameter: value for parameter, (_, value) in dimensions.items()}
    fixed = {"samples": 5, "scale": 50.0} if name == _IMBALANCED else {}
    return Loss(name, space, first, fixed, "cosine" if name in _ON_COSINES else "linear")


def drawn() -> Loss:
    """Return the noised hinge whose B is searched among all whole numbers up to 100.

    Example:
        >>> drawn().space["samples"]
        Int(low=1, high=100, log=True)
    """
    own = {**LOSS_CATALOGUE["noised_topk_hinge"].searched, "samples": (Int(1, 100, log=True), 10)}
    return searched("noised_topk_hinge", own=own)


def begun_at(loss: Loss, **values: Scalar) -> Loss:
    """Return the same loss with other first values for some of its parameters.

    Example:
        >>> begun_at(searched("topk_transition"), learning_rate=1.0).first["learning_rate"]
        1.0
    """
    return replace(loss, first={**loss.first, **values})
