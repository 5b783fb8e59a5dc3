"""The expectation of the noised top-K operator, without noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from topk_losses._checks import check_k, check_not_negative, check_scores
from topk_losses._shapes import computing

__all__ = ["expected_topk"]


def expected_topk(scores: Tensor, k: int, epsilon: float) -> Tensor:
    r"""The expectation of the k-th largest of independent Gaussians ``N(s_i, ε²)``.

    .. math:: E\,(s + \varepsilon Z)_{[k]}, \qquad Z \sim N(0, I)

    Args:
        scores: s, ``(..., L)``; -inf masks a class; rows with NaN or +inf give NaN.
        k: rank, in ``[1, L]``.
        epsilon: ε, at least 0; at 0 this is the k-th largest score itself.

    Returns:
        ``(...)``; float64 for float64 scores, else float32.

    Raises:
        ValueError: for scores that are not floating-point, k outside ``[1, L]`` and ε below 0.

    Example:
        >>> import torch
        >>> expected_topk(torch.tensor([0.0, 0.0]), k=1, epsilon=1.0)  # 1 / sqrt(π)
        tensor(0.5642)
    """
    check_scores(scores, dimensions=1)
    check_k(k, scores.shape[-1], "the number of classes")
    check_not_negative("epsilon", epsilon)
    values = computing(scores)
    top = values.topk(k, dim=-1).values[..., -1]
    if epsilon == 0:
        return top
    centre = top.detach().double().unsqueeze(-1)
    classes = scores.shape[-1]
    reach = 7.5 + math.sqrt(2 * math.log(classes + 1))
    nodes = torch.linspace(-reach, reach, 256, dtype=torch.float64, device=scores.device)
    step = 2 * reach / 255
    distances = (values.double() - centre) / epsilon
    exceed = 0.5 * torch.erfc((nodes - distances.unsqueeze(-1)) / math.sqrt(2))
    fewer = exceed.new_ones(*exceed.shape[:-2], 256).unsqueeze(-2)
    fewer = torch.cat([fewer, torch.zeros_like(fewer).expand(*fewer.shape[:-2], k - 1, 256)], -2)
    for p in exceed.unsqueeze(-3).unbind(-2):
        moved = torch.cat([torch.zeros_like(fewer[..., :1, :]), fewer[..., :-1, :]], -2)
        fewer = (1 - p) * fewer + p * moved
    cdf = fewer.sum(-2)
    area = (cdf.sum(-1) - (cdf[..., 0] + cdf[..., -1]) / 2) * step
    return (centre.squeeze(-1) + epsilon * (reach - area)).to(values.dtype)
