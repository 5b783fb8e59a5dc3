"""Measures of how well probabilities fit the shares of hits: log-likelihood, Brier score, calibration error."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["brier_score", "calibration_error", "negative_log_likelihood"]


def negative_log_likelihood(logs: Tensor, target: Tensor) -> Tensor:
    """Return the mean negative logarithm of the true class's probability, in nats.

    Args:
        logs: The result of :func:`~topk_platform.metrics.log_probabilities`, ``(..., N, L)``.
        target: int64 ``(..., N)``.

    Returns:
        float64 ``(...)``.
    """
    return -logs.gather(-1, target.unsqueeze(-1)).squeeze(-1).mean(-1)


def brier_score(logs: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared distance of the probabilities from the true class's indicator, in ``[0, 2]``.

    Args:
        logs: The result of :func:`~topk_platform.metrics.log_probabilities`, ``(..., N, L)``.
        target: int64 ``(..., N)``.

    Returns:
        float64 ``(...)``.

    Source:
        G. W. Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly Weather Review 78, 1950.
    """
    probabilities = logs.exp()
    own = probabilities.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (probabilities.square().sum(-1) - 2 * own + 1).mean(-1)


def calibration_error(confidence: Tensor, hit: Tensor, bins: int = 15) -> Tensor:
    """Return the expected calibration error over bins of equally many samples.

    Samples are sorted by their confidence and divided into ``bins`` bins, whose sizes differ by one at most. The error
    is the mean, weighted by these sizes, of the absolute differences between a bin's mean confidence and its share of
    hits. Samples of the same confidence count with their mean hit, so that their order does not matter.

    Args:
        confidence: The probability of the predicted class, float64 ``(..., N)``.
        hit: 1 if the predicted class is the true one, else 0; for tied classes the expectation; float64 ``(..., N)``.
        bins: The number of bins; with fewer samples than this, each sample is a bin.

    Returns:
        float64 ``(...)``.

    Source:
        Naeini, Cooper and Hauskrecht, AAAI 2015; with bins of equal mass, Roelofs et al., AISTATS 2022.

    Example:
        >>> calibration_error(torch.tensor([0.9, 0.6]).double(), torch.tensor([1.0, 0.0]).double(), bins=1).item()
        0.25
    """
    samples = confidence.shape[-1]
    confidence, order = confidence.sort(-1)
    block = functional.pad((confidence[..., 1:] != confidence[..., :-1]).long(), (1, 0)).cumsum(-1)
    hit = _mean_in(block, hit.gather(-1, order), samples)
    numbers = torch.arange(samples, device=hit.device) * bins // samples
    gaps = torch.zeros((*hit.shape[:-1], bins), dtype=hit.dtype, device=hit.device)
    return gaps.scatter_add(-1, numbers.expand_as(block), confidence - hit).abs().sum(-1) / samples


def _mean_in(block: Tensor, values: Tensor, blocks: int) -> Tensor:
    """Return each value's mean over its block."""
    empty = torch.zeros((*values.shape[:-1], blocks), dtype=values.dtype, device=values.device)
    sums, counts = (empty.scatter_add(-1, block, of) for of in (values, torch.ones_like(values)))
    return (sums / counts.clamp(min=1)).gather(-1, block)
