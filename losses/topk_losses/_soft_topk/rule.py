"""The losses on a soft top-K by a threshold: the choice of the rule for a call, and the losses of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from topk_losses._core.autograd import RuleOfLabels
from topk_losses._core.backends import choose
from topk_losses._soft_topk import cpu, cuda
from topk_losses._soft_topk.laplace import LapSum
from topk_losses._soft_topk.plain import PlainSoftTopK

__all__ = ["soft_topk_losses"]


def soft_topk_losses(k: int, tau: float, shape: str, by_log: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from rows ``(M, L)`` and labels ``(M, C)`` to the losses ``(M, C)``."""

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        backend = _backend(rows, labels, k, shape, by_log) if labels.shape[1] == 1 else "torch"
        return _rule(backend, k, tau, shape, by_log).losses(rows, labels)

    return losses


def _backend(rows: Tensor, labels: Tensor, k: int, shape: str, by_log: bool) -> str:
    return choose(
        "soft_topk",
        triton=lambda asked: cuda.refusal(rows, labels, k, shape, by_log, asked),
        numba=lambda _: cpu.refusal(rows),
    )


def _rule(backend: str, k: int, tau: float, shape: str, by_log: bool) -> RuleOfLabels[Any]:
    """The rule of a backend. In torch the Laplace threshold has a closed form, ten times as fast as Newton's method."""
    if backend == "torch" and shape == "laplace" and by_log:
        return LapSum(k, tau)
    rules = {"triton": cuda.TritonSoftTopK, "numba": cpu.NumbaSoftTopK, "torch": PlainSoftTopK}
    return rules[backend](k, tau, shape, by_log)
