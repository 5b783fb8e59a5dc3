"""The smooth top-K SVM in torch: loss and gradient of all rows.

The loss of a row is ``τ softplus(x)``. With ``p = sigmoid(x)``, its gradient is ``p (π^(K) - π^(K-1)) / K`` for the
other classes and ``-p / K`` for the label. ``arguments.py`` computes x and the slope ``π^(K) - π^(K-1)``, for some rows
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._core.autograd import Rule
from topk_losses._core.checks import values_are_readable
from topk_losses._core.shapes import computing
from topk_losses._smooth_svm.arguments import Problem, Slope, rows_argument, slope_rows

__all__ = ["CompleteSmoothSVM", "PlainSmoothSVM"]

CHUNK = 2**18  # scores processed at once, so that intermediate results fit into the cache
CHUNK_TABLES = 2**22  # table entries of the classes split off that are processed at once, for the same reason


@dataclass(frozen=True)
class PlainSmoothSVM(Rule[Any]):
    """The smooth top-K SVM with K and temperature τ in torch; it keeps p, and the slopes of each part of the rows."""

    k: int
    tau: float

    def plain(self, scores: Tensor, labels: Tensor, margin: float | Tensor) -> Tensor:
        """The losses, computed without reading values."""
        problem = Problem(self.k, self.tau, adaptive=False, with_slope=False)
        argument, _ = rows_argument(scores, labels, margin, problem)
        return (-self.tau * logsigmoid(-argument)).to(scores.dtype)

    def forward(
        self, scores: Tensor, labels: Tensor, margin: float | Tensor, *, with_gradient: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The losses, and p and the slopes of each part."""
        adaptive = values_are_readable(scores) and scores.numel() > 0
        problem = Problem(self.k, self.tau, adaptive, with_gradient)
        arguments: list[Tensor] = []
        slopes: list[Tensor] = []
        rows = self._rows_at_once(scores, adaptive)
        for first in range(0, max(scores.shape[0], 1), rows):
            part = slice(first, first + rows)
            own_margin = margin[part] if isinstance(margin, Tensor) else margin
            argument, slope = rows_argument(scores[part], labels[part], own_margin, problem)
            arguments.append(argument)
            slopes.extend(slope)
        argument = arguments[0] if len(arguments) == 1 else torch.cat(arguments)
        losses = logsigmoid(-argument).mul_(-self.tau).to(scores.dtype)
        return losses, (argument.sigmoid(), *slopes)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor, Tensor]:
        """The gradient from p and the slopes of each part."""
        probability, *slopes = kept
        by_margin = (gradient * probability).to(gradient.dtype)
        factor = by_margin * (-1 / self.k)
        by_score = torch.empty_like(scores, memory_format=torch.contiguous_format)
        fields = len(Slope._fields)
        rows = self._rows_at_once(scores, adaptive=len(slopes) > fields)
        for i in range(len(slopes) // fields):
            part = slice(i * rows, (i + 1) * rows)
            slope_rows(
                Slope(*slopes[i * fields : (i + 1) * fields]), labels[part], factor[part], by_score[part]
            )
        return by_score, by_margin

    def _rows_at_once(self, scores: Tensor, adaptive: bool) -> int:
        """The number of rows processed at once; all rows if values cannot be read, as on a GPU."""
        if not adaptive:
            return max(1, scores.shape[0])
        return max(1, min(CHUNK // scores.shape[1], CHUNK_TABLES // (3 * self.k**2)))


@dataclass(frozen=True)
class CompleteSmoothSVM(Rule[Any]):
    """What the rules with kernels share: they handle ignored labels (loss 0) and masked targets (+inf) themselves."""

    k: int
    tau: float
    ignore_index: int = -100
    complete: ClassVar[bool] = True
    passes_nan: ClassVar[bool] = True

    def plain(self, scores: Tensor, labels: Tensor, margin: float | Tensor) -> Tensor:
        """The losses in plain torch."""
        rows, ignored = computing(scores), labels == self.ignore_index
        labels = labels.masked_fill(ignored, 0).unsqueeze(1)
        losses = PlainSmoothSVM(self.k, self.tau).plain(rows, labels, margin)
        masked = rows.detach().gather(1, labels).squeeze(1) == -torch.inf
        return losses.masked_fill(masked, torch.inf).masked_fill(ignored, 0)
