r"""The noised top-K operator and hinge on the CPU, with draws by a kernel that Numba compiles.

Only values that exceed a threshold are drawn, by the three steps of ``exceedances.py``, whose proof holds for any
threshold and any gaps. Scores are in units of ε from the row's centre, its k-th largest score or slightly less.

*Bins.* The classes down to 6.2 below the centre are put into bins of width 0.2. The threshold u is the highest upper
edge of a bin such that ``k + 2.5 sqrt(k) + 1`` noisy scores are expected to exceed it, but at least -2.8.

*Outright.* The classes of the bins down to 0.6 below u are drawn outright.

*Thinning.* Every other bin has its own gap g, from its upper edge to u. A cell is one class in one draw. The cells of
the bin whose noise exceeds g are a Bernoulli process with probability ``1 - Φ(g)``: between two of them lie ``⌊E/ν⌋``
cells, with E exponential and ``ν = -log Φ(g)``. The noise of such a cell is a normal variable above g. It is drawn by
rejection: ``Z = g + E/λ`` with ``λ = (g + sqrt(g² + 4))/2`` is kept with probability ``exp(-(Z - λ)²/2)``, that is, if
another exponential variable is at least ``(Z - λ)²/2``. The classes below all bins are thinned in the same way, by a
walk over the cells of all classes that skips those in bins.

*Completion.* In a draw with fewer than k values above u, all others are drawn given that they do not exceed u.

Several draws are made side by side (in lanes); min and max of whole rows of lanes find the k largest of each.

NumPy's generator SFC64, seeded from torch's generator, makes normals and exponentials by the ziggurat method from
integers of 52 and 53 bits. They can be coupled with exact variables such that both lead to the same decisions, unless
an integer is next to one at which a decision changes: in the ziggurat, in a rejection, or in the number of cells
skipped. With fewer than 16 decisions per cell, the total variation between a draw of L classes and an exact one is at
most ``16 L 2^-52``, below 1e-6 up to 10^8 classes, apart from the rounding that the full draw also has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import lazily
from topk_losses._noised.plain import DrawnHinge, KeptDraws

__all__ = ["NumbaNoisedHinge", "draw", "refusal"]

KERNELS = lazily("topk_losses._noised.cpu_kernels")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # half precision becomes float32 first
MOST_K = 64  # finding the k largest takes k steps per value
LEAST_EPSILON = 1e-300  # the reciprocal is still finite
SPARE = 2.5  # how many standard deviations above k the expected number of exceedances is
LEAST_WORK = 4800  # the fewest draws per generator: creating one takes as long as some hundred draws
ROW_COST = 20  # the fixed cost of a row, in draws
LONG = 64  # classes; in shorter rows a draw costs proportionally less
MOST_SCORES = 2**20  # the most scores per generator
MOST_PARTS = 16  # the most parts of a seed's rows, each with its own generator


def refusal(scores: Tensor, k: int, epsilon: float, target: Tensor | None = None) -> str | None:
    """Why the kernels do not draw for these scores ``(N, L, ...)``, or do not take the target."""
    if target is not None and (target.is_floating_point() or target.device != scores.device):
        return "the targets are soft, or on another device"
    if k > MOST_K:
        return f"k is above {MOST_K}"
    if not epsilon > LEAST_EPSILON:
        return f"epsilon is at most {LEAST_EPSILON}"
    return numba.refusal(scores, DTYPES)


def draw(scores: Any, k: int, epsilon: float, samples: int, seeds: Sequence[int]) -> tuple[Any, Any]:
    """Draw, and return the classes ``(N, B)`` of the k-th largest and their mean noise ``(N,)``, for scores ``(N, L)``.

    All three are arrays. Each seed is used for an equal share of the rows, and gives the draws that it would give for
    its share alone. The noise is NaN in rows with NaN or +inf, and -inf in rows with fewer than k classes; the classes
    of both are -1.
    """
    kernels, (rows, size) = KERNELS(), scores.shape
    classes, noise = numba.empty("int64", rows, samples), numba.empty(scores.dtype, rows)
    # An epsilon that is an int would compile a second version.
    how = k, float(epsilon), k + SPARE * math.sqrt(k) + 1, kernels.tables()
    share = rows // len(seeds)
    work = share * (ROW_COST + samples) * min(size, LONG) // LONG
    parts = min(MOST_PARTS, 1 + work // LEAST_WORK + share * size // MOST_SCORES)

    def run(begin: int, end: int) -> None:
        for job in range(begin, end):
            i, part = divmod(job, parts)
            own = slice(i * share + share * part // parts, i * share + share * (part + 1) // parts)
            random = kernels.generator(seeds[i], part)
            kernels.draw_rows(scores[own], *how, random, classes[own], noise[own])

    numba.in_parts(run, len(seeds) * parts, at_least=1)
    return classes, noise


@dataclass(frozen=True)
class NumbaNoisedHinge(DrawnHinge):
    """The noised top-K hinge with K, ε and B, in two kernels."""

    passes_nan: ClassVar[bool] = True

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        margin: float | Tensor,
        seeds: Tensor,
        *,
        with_gradient: bool,  # noqa: ARG002
    ) -> tuple[Tensor, KeptDraws]:
        """The losses, and the draws."""
        rows = numba.array(scores)
        classes, noise = draw(rows, self.k + 1, self.epsilon, self.samples, seeds.tolist())
        losses, active = numba.empty(rows.dtype, len(rows)), numba.empty(rows.dtype, len(rows))
        inputs = rows, numba.array(labels), numba.numbers(margin, scores.dtype), self.ignore_index
        KERNELS().hinges(*inputs, classes, noise, losses, active)
        return torch.from_numpy(losses), KeptDraws(torch.from_numpy(active), torch.from_numpy(classes))

    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: KeptDraws
    ) -> tuple[Tensor | None, ...]:
        """The gradient with respect to the scores and the margins."""
        out = torch.zeros_like(scores, memory_format=torch.contiguous_format)
        tensors = (labels, kept.places, kept.active, gradient)
        KERNELS().hinge_gradients(*(numba.array(tensor) for tensor in tensors), out.numpy())
        return out, gradient * kept.active, None
