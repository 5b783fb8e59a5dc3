"""The losses over a soft top-K by a threshold: the rule for a call, and the losses of rows."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from topk_losses._core.backends import choose
from topk_losses._soft_topk import cpu, cuda
from topk_losses._soft_topk.plain import PlainSoftTopK

__all__ = ["soft_topk_losses"]


def soft_topk_losses(k: int, tau: float, shape: str, by_log: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """The losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``."""

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        hard = labels.shape[1] == 1
        rule = _rule(rows, labels, k, shape, by_log) if hard else PlainSoftTopK
        return rule(k, tau, shape, by_log).losses(rows, labels)

    return losses


def _rule(rows: Tensor, labels: Tensor, k: int, shape: str, by_log: bool) -> type[PlainSoftTopK]:
    backend = choose(
        "soft_topk",
        triton=lambda asked: cuda.refusal(rows, labels, k, shape, by_log, asked),
        numba=lambda _: cpu.refusal(rows),
    )
    if backend == "triton":
        return cuda.TritonSoftTopK
    return cpu.NumbaSoftTopK if backend == "numba" else PlainSoftTopK
