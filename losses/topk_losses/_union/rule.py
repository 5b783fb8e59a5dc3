"""The losses in which the K best classes count as one: the choice of the rule for a call, and the losses of rows."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from topk_losses._core.backends import choose
from topk_losses._union import cpu
from topk_losses._union.plain import PlainUnion

__all__ = ["union_losses"]


def union_losses(k: int, transition: bool, detach_weight: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from rows ``(M, L)`` and labels ``(M, C)`` to the losses ``(M, C)``."""
    plain = PlainUnion(k, transition, detach_weight)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        hard = labels.shape[1] == 1
        backend = choose("topk_union", numba=lambda _: cpu.refusal(rows)) if hard else "torch"
        rule = cpu.NumbaUnion(k, transition, detach_weight) if backend == "numba" else plain
        return rule.losses(rows, labels)

    return losses
