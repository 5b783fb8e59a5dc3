"""The noised top-K operator of Garcin et al. 2022."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._core.checks import check_k, check_noise, check_not_negative, check_samples, check_scores
from topk_losses._core.shapes import computing
from topk_losses._noised.draws import noised_draws

__all__ = ["noised_topk"]


def noised_topk(
    scores: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the mean k-th largest entry of B noisy copies of the scores.

    .. math:: \frac{1}{B} \sum_b (s + \varepsilon Z_b)_{[k]}, \qquad Z_b \sim N(0, I)

    The gradient is the share of the draws in which each class was the k-th largest, from the same draws as the value;
    the second derivative is 0. The expectation lies between ``s_[k] - ε·sqrt(2 log k)`` and
    ``s_[k] + ε·sqrt(2 log(L - k + 1))``; :func:`expected_topk` computes it without noise.

    On the CPU, in eager mode and outside ``torch.func``, noise is drawn only where it can matter: for the leading
    classes, and for the others only the values above a threshold. The distribution differs from that of the full draw
    by less than 1e-6 in total variation; the proof is in ``_noised/exceedances.py``. Where Numba is installed, a kernel
    draws for k up to 64; otherwise torch draws this way for rows of at least 64 classes and at least 8 k. The same
    generator state gives different draws in each of these ways.

    Args:
        scores: s, ``(..., L)``; -inf masks a class; rows with NaN or +inf give NaN.
        k: rank, in ``[1, L]``.
        epsilon: ε, the standard deviation of the noise, at least 0; at 0 nothing is drawn and the result is the k-th
            largest score itself.
        samples: B, the number of draws per row.
        noise: standard normal draws Z to use instead of new ones, ``(B, ..., L)``; ``samples`` is then ignored.
        generator: random generator of the draws, on the scores' device.

    Returns:
        ``(...)``; float64 for float64 scores, else float32.

    Raises:
        ValueError: for scores that are not floating-point, k outside ``[1, L]``, ε below 0, B below 1 and
            noise of another shape.

    References:
        Garcin et al.: Stochastic smoothing of the top-K calibrated hinge loss for deep imbalanced
        classification, ICML 2022, (10) to (12).

    Example:
        >>> import torch
        >>> scores = torch.tensor([2.4, 2.6, 2.3, 0.5])
        >>> noise = torch.tensor([[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]])
        >>> noised_topk(scores, k=2, epsilon=1.0, samples=3, noise=noise)
        tensor(2.4667)
    """
    check_scores(scores, dimensions=1)
    check_k(k, scores.shape[-1], "the number of classes")
    check_not_negative("epsilon", epsilon)
    if samples is None:
        raise ValueError(
            "samples must be an int of at least 1, got None; the exact expectation is expected_topk"
        )
    check_samples(samples)
    if noise is not None:
        check_noise(noise, scores.shape)
    values = computing(scores)
    rows = values.reshape(-1, values.shape[-1])
    if noise is not None:
        noise = noise.reshape(noise.shape[0], *rows.shape)
    draws = noised_draws(rows, k, epsilon, samples, noise, generator)
    top = rows.gather(1, draws.classes).mean(1) + draws.noise
    invalid = ~(rows.detach().amax(1) < torch.inf)
    return top.masked_fill(invalid, torch.nan).reshape(values.shape[:-1])
