"""Draws of the k-th largest noisy score: which class it is in each draw, and its noise.

Where the values may be looked at and the rows are long, few random numbers do, see ``_exceedances.py``: the leading
classes are drawn outright, and of the others only what exceeds a threshold. The threshold lies a few standard
deviations below the k-th largest score, or, where that would let too many exceed it, where a few more than k are
expected to.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._candidates import largest
from topk_losses._checks import values_are_readable
from topk_losses._noised_search import FRINGE, KthLargest

__all__ = ["Draws", "noised_draws"]

SHORTEST = 4  # rows shorter than this multiple of the k + 26 largest are drawn in full
PART = 2**16  # draws at once


class Draws(NamedTuple):
    """The k-th largest of ``s + εZ`` of each row and draw."""

    classes: Tensor
    """Its class ``(N, B)``."""
    noise: Tensor
    """Its εZ ``(N, B)``."""


def noised_draws(
    scores: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Draws:
    """Draws for scores ``(N, L)``, from noise ``(B, N, L)`` if it is given; no gradient flows through them."""
    scores = scores.detach()
    long = scores.shape[1] >= SHORTEST * (k + FRINGE) and scores.shape[0] > 0
    if noise is None and epsilon > 0 and long and values_are_readable(scores):
        rows = max(1, PART // samples)
        parts = [_economical(part, k, epsilon, samples, generator) for part in scores.split(rows)]
        return Draws(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
    return _in_full(scores, k, epsilon, samples, noise, generator)


def _in_full(
    scores: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    noise: Tensor | None,
    generator: torch.Generator | None,
) -> Draws:
    if epsilon == 0:
        classes = scores.topk(k).indices[:, -1:]
        return Draws(classes, torch.zeros_like(classes, dtype=scores.dtype))
    if noise is None:
        noise = _normal((samples, *scores.shape), scores, generator)
    noise = epsilon * noise.detach().to(scores.dtype)
    # Relative to the largest score, so that an offset does not round away the noise.
    classes = (scores - scores.amax(1, keepdim=True) + noise).topk(k).indices[..., -1:]
    return Draws(classes.squeeze(-1).t(), noise.gather(2, classes).squeeze(-1).t())


def _normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    if generator is None:  # the overload that takes a generator has no symbolic shapes for torch.compile
        return torch.randn(shape, device=like.device, dtype=like.dtype)
    return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)


def _economical(
    scores: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
) -> Draws:
    """Draws of some rows by what exceeds a threshold."""
    values, classes = largest(scores, k + FRINGE)
    usual = (values[:, 0] < torch.inf) & (values[:, k - 1] > -torch.inf)
    if not usual.all():
        return _with_unusual_rows(scores, k, epsilon, samples, generator, classes[:, k - 1], usual)
    centre = values[:, k - 1 : k].clone()
    best = (values - centre).div_(epsilon)
    drawn = KthLargest(scores, centre, epsilon, best, classes, k, samples, generator).draw()
    if drawn is None:
        return _in_full(scores, k, epsilon, samples, None, generator)
    heights, places = (tensor.view(-1, samples) for tensor in drawn)
    return Draws(places, heights.mul(epsilon).sub_(scores.gather(1, places) - centre))


def _with_unusual_rows(
    scores: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    generator: torch.Generator | None,
    kth: Tensor,
    usual: Tensor,
) -> Draws:
    """Rows with NaN or +inf, or with fewer than k classes: their k-th largest score, without noise."""
    places = kth.unsqueeze(1).repeat(1, samples)
    noise = torch.zeros(places.shape, dtype=scores.dtype)
    if usual.any():
        places[usual], noise[usual] = _economical(scores[usual], k, epsilon, samples, generator)
    return Draws(places, noise)
