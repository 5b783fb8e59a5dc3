"""The noised top-K hinge in torch: draws select classes, and autograd differentiates their scores."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from topk_losses._core.shapes import class_last, per_label
from topk_losses._noised.draws import noised_draws
from topk_losses._noised.generators import Generators
from topk_losses._rows.invalid import with_nan_where_invalid

__all__ = ["noised_losses"]


def noised_losses(
    k: int,
    epsilon: float,
    samples: int,
    margin: float | Tensor,
    noise: Tensor | None,
    generator: Generators,
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from rows ``(M, L)`` and labels ``(M, C)`` to the losses ``(M, C)``.

    It uses the noise ``(B, N, L, ...)`` if it is given, and otherwise draws noise.
    """
    given = None if noise is None else torch.stack([class_last(draw) for draw in noise.unbind(0)])

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        largest = rows.detach().amax(1, keepdim=True)
        draws = noised_draws(rows, k + 1, epsilon, samples, given, generator)
        # Relative to a (K+1)-th largest score, so that the noise is not rounded away beside large scores.
        near = rows.detach().gather(1, draws.classes[:, :1])
        near = torch.where(near == -torch.inf, largest, near)
        # One gather for both, since the gradient of each gather is a tensor of the scores' size.
        picked = rows.gather(1, torch.cat([draws.classes, labels], 1)) - near
        kth, own = picked.tensor_split([draws.classes.shape[1]], 1)
        top = (kth.mean(1) + draws.noise).unsqueeze(1)
        return with_nan_where_invalid(top - own + per_label(margin, labels, rows), largest).relu()

    return losses
