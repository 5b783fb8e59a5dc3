"""Elementary symmetric polynomials in log-space, and their gradient, the inclusion probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._core.checks import check_k, check_positive, check_scores
from topk_losses._core.shapes import computing
from topk_losses._smooth_svm.symmetric import log_symmetric

__all__ = ["inclusion_probabilities", "log_elementary_symmetric"]


def log_elementary_symmetric(log_values: Tensor, k: int) -> Tensor:
    r"""Return ``log σ_k(exp(log_values))``, with σ_k the k-th elementary symmetric polynomial.

    .. math:: \log \sum_{A \subset [L], |A| = k} \exp \sum_{j \in A} v_j

    Args:
        log_values: v, ``(..., L)``; -inf stands for a value of 0.
        k: degree, in ``[1, L]``.

    Returns:
        ``(...)``; -inf where fewer than k values are above 0. float64 for float64 values, else float32.

    Raises:
        ValueError: for values that are not floating-point and k outside ``[1, L]``.

    Example:
        >>> import torch
        >>> log_elementary_symmetric(torch.tensor([1.0, 2.0, 3.0]).log(), k=2).exp()  # 1·2 + 1·3 + 2·3
        tensor(11.0000)
    """
    check_scores(log_values, "log_values", dimensions=1)
    check_k(k, log_values.shape[-1], "the number of values")
    rows = computing(log_values)
    result = log_symmetric(rows.reshape(-1, rows.shape[-1]).to(torch.float64), k)
    return result.reshape(rows.shape[:-1]).to(rows.dtype)


def inclusion_probabilities(scores: Tensor, k: int, temperature: float = 1.0) -> Tensor:
    r"""Return the probability of each class to be in a random k-subset A, drawn with weight ``exp(Σ_{j∈A} s_j / T)``.

    .. math:: \pi_j = e_j \sigma_{k-1}(e_{\setminus j}) / \sigma_k(e), \qquad e = \exp(s / T)

    This is the gradient of ``log σ_k`` with respect to ``s / T``, and differentiable again. For k = 1 it is the
    softmax. To predict the top k from several views of one image, average these probabilities over the views
    (Berrada et al. 2018, appendix C).

    Args:
        scores: ``(..., L)``; -inf masks a class.
        k: size of the subset, in ``[1, L]``.
        temperature: T, above 0.

    Returns:
        ``(..., L)``, each row summing to k, or to the number of its finite scores where that is smaller; float64
        for float64 scores, else float32.

    Raises:
        ValueError: for scores that are not floating-point, k outside ``[1, L]`` and temperatures not above 0.

    Example:
        >>> import torch
        >>> inclusion_probabilities(torch.tensor([1.0, 2.0, 3.0]).log(), k=2)
        tensor([0.4545, 0.7273, 0.8182])
    """
    check_scores(scores, dimensions=1)
    check_k(k, scores.shape[-1], "the number of classes")
    check_positive("temperature", temperature)
    rows = computing(scores)
    values = rows.reshape(-1, rows.shape[-1]).to(torch.float64) / temperature
    chances: Tensor = torch.func.grad(lambda v: log_symmetric(v, k).sum())(values)
    return chances.reshape(rows.shape).to(rows.dtype)
