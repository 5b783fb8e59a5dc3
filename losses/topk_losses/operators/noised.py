"""The noised top-K operator of Garcin et al. 2022."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._core.checks import check_k, check_noise, check_not_negative, check_samples, check_scores
from topk_losses._core.shapes import computing
from topk_losses._expected.rule import expected_below_largest
from topk_losses._noised.draws import noised_draws

__all__ = ["expected_topk", "noised_topk"]


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


def expected_topk(scores: Tensor, k: int, epsilon: float) -> Tensor:
    r"""Return the expected k-th largest of independent Gaussians ``N(s_i, ε²)``, without Monte Carlo.

    .. math:: E\,(s + \varepsilon Z)_{[k]} = b - \int_a^b F(t)\,dt, \qquad
        F(t) = P\bigl(\text{at most k - 1 of the } s_i + \varepsilon Z_i \text{ exceed } t\bigr)

    F is the tail of a Poisson-binomial distribution, computed as a product of polynomials ``(1 - p_i) + p_i x``
    truncated at degree k - 1. The window ``[a, b]`` is where F lies within (1e-12, 1 - 1e-12). The union bound gives
    a window that is certain to contain it, about 16 ε wide; a few nodes on it then narrow it down. The trapezoid rule
    with 64 nodes on the window converges faster than any power of their distance, because F is analytic and flat at
    both ends. The computation is in float64, with an error below 1e-8 ε.

    In eager mode on the CPU and outside ``torch.func``, two things save work. Classes that are the k-th largest with
    a probability of at most 1e-12 (1e-8 for float32 scores) are skipped, and the number of nodes adapts: the sum over
    every second node shows whether more are needed. Where Numba is installed and k is at most 65, its kernels do this
    with an error below 1e-10 ε, or 1e-6 ε for float32 (rules in ``_expected/cpu.py``). Otherwise torch does it for
    rows of at least 64 classes and k up to an eighth of them, with an error below 1e-9 ε, or 1e-6 ε for float32
    (``_expected/quadrature.py``).

    The gradient is the probability of each class to be the k-th largest, which sums to 1. The second derivative
    exists, too. Rows and nodes are processed in pieces, which bounds the memory.

    Args:
        scores: s, ``(..., L)``; -inf masks a class; rows with NaN or +inf give NaN.
        k: rank, in ``[1, L]``.
        epsilon: ε, the standard deviation of the noise, at least 0; at 0 the result is the k-th largest score itself.

    Returns:
        ``(...)``; -inf where fewer than k classes are unmasked. float64 for float64 scores, else float32.

    Raises:
        ValueError: for scores that are not floating-point, k outside ``[1, L]`` and ε below 0.

    References:
        Garcin et al. 2022 define the expectation, (6) and Definition 3.4, and estimate it from draws.

    Example:
        >>> import torch
        >>> scores = torch.tensor([0.0, 0.0], requires_grad=True)
        >>> value = expected_topk(scores, k=1, epsilon=1.0)  # 1 / sqrt(π)
        >>> value.backward()
        >>> value.detach(), scores.grad
        (tensor(0.5642), tensor([0.5000, 0.5000]))
    """
    check_scores(scores, dimensions=1)
    check_k(k, scores.shape[-1], "the number of classes")
    check_not_negative("epsilon", epsilon)
    values = computing(scores)
    rows = values.reshape(-1, values.shape[-1])
    largest = rows.detach().amax(1)
    exact = epsilon == 0
    mean = rows.topk(k).values[:, -1] if exact else largest + expected_below_largest(rows, k, epsilon)
    mean = mean.to(values.dtype)
    return mean.masked_fill(~(largest < torch.inf), torch.nan).reshape(values.shape[:-1])
