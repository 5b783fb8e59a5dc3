"""The cross-entropy with a relaxed sorting network: the choice of the rule for a call, and the losses of rows."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.backends import choose
from topk_losses._sorting import cpu
from topk_losses._sorting.plain import Network, plain_losses

__all__ = ["sorting_losses"]


def sorting_losses(rows: Tensor, labels: Tensor, network: Network) -> Tensor:
    """The losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``."""
    backend = choose("sorting", numba=lambda _: cpu.refusal(rows, labels, network))
    if backend == "numba":
        return cpu.NumbaSorting(network).losses(rows, labels)
    return plain_losses(rows, labels, network)
