"""References in log-space for many rows and classes, in float64: slow, without cancellation, safe for any range."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["log_inclusion", "smooth_topk_svm_rows"]


def log_inclusion(values: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``log σ_0 … log σ_k`` of ``exp(values)`` ``(N, k + 1)``, and ``π^(k)`` and ``π^(k-1)`` ``(N, L)`` each.

    The polynomials of the classes before and after a class give the weight of the subsets that contain it.

    Example:
        >>> import torch
        >>> table, with_two, with_one = log_inclusion(torch.zeros(1, 4, dtype=torch.float64), 2)
        >>> table.exp(), with_two
        (tensor([[1., 4., 6.]], dtype=torch.float64), tensor([[0.5000, 0.5000, 0.5000, 0.5000]], dtype=torch.float64))
    """
    prefixes = [values.new_full((values.shape[0], k + 1), -torch.inf)]
    prefixes[0][:, 0] = 0
    for column in values.unbind(1):
        prefixes.append(_grow(prefixes[-1], column))
    total = prefixes[-1]
    suffix, chances = prefixes[0], []
    for j in range(values.shape[1] - 1, -1, -1):
        held = [_with_class(prefixes[j], suffix, m) + values[:, j] - total[:, m] for m in (k, k - 1)]
        chances.append(torch.stack(held).exp())
        suffix = _grow(suffix, values[:, j])
    stacked = torch.stack(chances[::-1], 2)
    return total, stacked[0], stacked[1]


def _grow(table: Tensor, column: Tensor) -> Tensor:
    return torch.cat([table[:, :1], torch.logaddexp(table[:, 1:], table[:, :-1] + column[:, None])], 1)


def _with_class(prefix: Tensor, suffix: Tensor, m: int) -> Tensor:
    if m == 0:
        return prefix.new_full((prefix.shape[0],), -torch.inf)
    return torch.logsumexp(prefix[:, :m] + suffix[:, :m].flip(1), 1)


def smooth_topk_svm_rows(
    scores: Tensor, target: Tensor, k: int, tau: Tensor | float = 1.0, margin: Tensor | float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return losses ``(N,)`` and gradients ``(N, L)`` of the smooth top-K SVM; τ and the margin may differ by row.

    Example:
        >>> import torch
        >>> loss, gradient = smooth_topk_svm_rows(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        >>> loss
        tensor([0.7909], dtype=torch.float64)
    """
    labels = target[:, None]
    exponents = scores.to(torch.float64) / (k * torch.as_tensor(tau, dtype=torch.float64)).reshape(-1, 1)
    table, chances, chances_less = log_inclusion(exponents.scatter(1, labels, -torch.inf), k)
    argument = margin / tau + table[:, k] - table[:, k - 1] - exponents.gather(1, labels).squeeze(1)
    share = (argument.sigmoid() / k)[:, None]
    gradient = ((chances - chances_less) * share).scatter(1, labels, -share)
    return -tau * logsigmoid(-argument), gradient
