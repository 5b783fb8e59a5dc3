"""The losses of the studies on letters: each searched, and each with the papers' values."""

from __future__ import annotations

from dataclasses import replace

from topk_platform import Loss
from topk_studies import searched_losses
from topk_studies.searched_losses import Firsts, drawn, searched

__all__ = ["SAMPLES", "as_published", "balanced", "others", "uneven"]

SAMPLES = 10
"""Sample count B of the noised hinge where it is not searched: garcin2022's."""

_AT = Firsts()
_PUBLISHED = "-papers"


def as_published(loss: Loss) -> Loss:
    """Return a searched loss with its first values, the papers', fixed, labelled ``NAME-papers``.

    Example:
        >>> as_published(balanced()[0]).label, as_published(balanced()[0]).fixed["weight_decay"]
        ('cross_entropy-papers', 0.0001)
    """
    fixed = {**loss.fixed, **loss.first}
    return replace(loss, space={}, first={}, fixed=fixed, label=f"{loss.label}{_PUBLISHED}")


def balanced() -> list[Loss]:
    """Return berrada2018's, garcin2022's and sawada2020's losses, cross-entropy first.

    First values are berrada2018's τ = 1, garcin2022's ε = 0.2 with B = 10, and the margin 1.

    Example:
        >>> [loss.name for loss in balanced()][1:4]
        ['smooth_topk_svm', 'noised_topk_hinge', 'calibrated_topk_hinge']
    """
    noised = drawn(_AT)
    return [noised if loss.name == noised.name else loss for loss in searched_losses.balanced(_AT)]


def others() -> list[Loss]:
    """Return losses that a reader would compare with: generalised cross-entropy, the soft top-K loss, AUTKC.

    First values are Zhang and Sabuncu 2018's γ = 0.7, τ = 1 as in Amos et al. 2019, whose layer has no temperature, and
    Wang et al. 2023's squared surrogate, which has no parameter.

    Example:
        >>> [loss.name for loss in others()]
        ['generalized_cross_entropy', 'soft_topk_loss', 'autkc']
    """
    return [searched(name, _AT) for name in ("generalized_cross_entropy", "soft_topk_loss", "autkc")]


def uneven() -> list[Loss]:
    """Return the losses that garcin2022 compares on long tails besides: focal, LDAM, the noised imbalanced hinge.

    First values are γ = 2, Cao et al. 2019's largest margin 0.5 with scale 30, and garcin2022's ε = 0.01 and largest
    margin 0.2, of which scale 50 and B = 5 stay as they are.

    Example:
        >>> {loss.name: loss.head for loss in uneven()}["ldam"]
        'cosine'
    """
    return searched_losses.uneven(_AT)
