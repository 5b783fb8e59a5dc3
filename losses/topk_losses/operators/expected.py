"""The exact expectation of the noised top-K operator, by quadrature of a Poisson-binomial tail."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._core.checks import check_k, check_not_negative, check_scores
from topk_losses._core.shapes import computing
from topk_losses._expected.rule import expected_below_largest

__all__ = ["expected_topk"]


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
