"""Draws of the k-th largest noisy score: which class it is in each, and its noise.

Where the values may be looked at and the rows are long, only what exceeds a threshold is drawn, as ``_exceedances.py``
explains and proves. ``_noised_threshold.py`` chooses the thresholds, ``_noised_columns.py`` draws.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._candidates import grouped
from topk_losses._checks import values_are_readable
from topk_losses._noised_columns import Columns
from topk_losses._noised_threshold import find_threshold

__all__ = ["Draws", "noised_draws"]

SHORTEST = 64  # rows shorter than this, or than 8 k, are drawn in full
SCORES = 2**20  # at once
COLUMNS = 2**14  # draws of rows at once


class Draws(NamedTuple):
    """The k-th largest of ``s + εZ`` of each row."""

    classes: Tensor
    """Its class in each draw ``(N, B)``."""
    noise: Tensor
    """The mean over the draws of its εZ ``(N,)``."""


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
    long = scores.shape[1] >= max(SHORTEST, 8 * k) and scores.shape[0] > 0
    if noise is not None or epsilon == 0 or not long or not values_are_readable(scores):
        return _in_full(scores, k, epsilon, samples, noise, generator)
    rows = max(1, SCORES // scores.shape[1])
    parts = [_by_exceedances(part, k, epsilon, samples, generator) for part in torch.split(scores, rows)]
    return Draws(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _in_full(
    scores: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    noise: Tensor | None,
    generator: torch.Generator | None,
) -> Draws:
    # Relative to the largest score, so that an offset does not round away the noise.
    if epsilon == 0:
        classes = scores.topk(k).indices[:, -1:]
        return Draws(classes, torch.zeros_like(scores[:, 0]))
    if noise is None:
        noise = _normal((samples, *scores.shape), scores, generator)
    noise = epsilon * noise.detach().to(scores.dtype)
    places = (scores - scores.amax(1, keepdim=True) + noise).topk(k).indices[..., -1:]
    return Draws(places.squeeze(-1).t(), noise.gather(2, places).squeeze(-1).mean(0))


def _normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    if generator is None:  # the overload that takes a generator has no symbolic shapes for torch.compile
        return torch.randn(shape, device=like.device, dtype=like.dtype)
    return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)


def _by_exceedances(
    scores: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
) -> Draws:
    groups = grouped(scores, k)
    usual = (groups.largest < torch.inf) & (groups.centre > -torch.inf)
    if not usual.all():
        return _without_unusual_rows(scores, k, epsilon, samples, generator, usual)
    columns = Columns.of(scores, groups, find_threshold(groups, k, epsilon), k, epsilon, generator)
    at_once = max(1, COLUMNS // len(scores))
    blocks = [columns.draw(min(at_once, samples - b)) for b in range(0, samples, at_once)]
    values, classes = (torch.cat(tensors) for tensors in zip(*blocks, strict=True))
    centred = scores.gather(1, classes.t()).sub_(groups.centre.unsqueeze(1))
    return Draws(classes.t(), values.mean(0).mul_(epsilon).sub_(centred.mean(1)))


def _without_unusual_rows(
    scores: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None, usual: Tensor
) -> Draws:
    """Rows with NaN, +inf or fewer than k classes have the k-th largest of their scores, without noise."""
    classes = scores.topk(k).indices[:, -1:].repeat(1, samples)
    noise = torch.zeros_like(scores[:, 0])
    if usual.any():
        classes[usual], noise[usual] = _by_exceedances(scores[usual], k, epsilon, samples, generator)
    return Draws(classes, noise)
