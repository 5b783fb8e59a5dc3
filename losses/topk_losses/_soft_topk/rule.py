"""The losses over a soft top-K by a threshold: the rule for a call, and the losses of rows."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from topk_losses._core.backends import choose
from topk_losses._soft_topk import cpu
from topk_losses._soft_topk.plain import PlainSoftTopK

__all__ = ["soft_topk_losses"]


def soft_topk_losses(k: int, tau: float, shape: str, by_log: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """The losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``."""

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        hard = labels.shape[1] == 1
        backend = choose("soft_topk", numba=lambda _: cpu.refusal(rows)) if hard else "torch"
        rule = cpu.NumbaSoftTopK if backend == "numba" else PlainSoftTopK
        return rule(k, tau, shape, by_log).losses(rows, labels)

    return losses
