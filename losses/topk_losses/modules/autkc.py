"""The area under the top-k curve as a module."""

from __future__ import annotations

from topk_losses import functional
from topk_losses._core.checks import check_one_of
from topk_losses.functional.autkc import SURROGATES
from topk_losses.modules._base import K, Loss, module_of

__all__ = ["AUTKC"]


@module_of(functional.autkc)
class AUTKC(Loss):
    """AUTKC, a surrogate for the area above the top-k curve, see :func:`~topk_losses.functional.autkc`.

    Example:
        >>> import torch
        >>> AUTKC(k=2, surrogate="hinge")(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.7500)
    """

    k: K
    surrogate: str = "squared"

    def check(self) -> None:
        """Refuse arguments of the constructor."""
        check_one_of("surrogate", self.surrogate, tuple(SURROGATES))
