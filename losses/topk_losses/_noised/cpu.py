r"""The noised top-K operator and hinge on the CPU: rows drawn for by a kernel that Numba compiles.

It draws only what exceeds a threshold, by the three steps of ``exceedances.py``, whose proof holds for any threshold
and any gaps. Scores are in units of ε from the row's centre, its k-th largest score or a little less.

*Bins.* The classes down to 6.2 below the centre are put into bins of width 0.2. The threshold u is the highest upper
edge of a bin that ``k + 2.5 sqrt(k) + 1`` noisy scores are expected to exceed, but not below -2.8.

*Outright* are drawn the classes of all bins from 0.6 below u on.

*Thinning.* Every other bin has its own gap g, that from its upper edge to u. The cells of its classes, draw after draw,
are a Bernoulli process with probability ``1 - Φ(g)``: between two that exceed g lie ``⌊E/ν⌋``, with E exponential and
``ν = -log Φ(g)``. The noise of one that does is a normal beyond g, by rejection: ``Z = g + E/λ``, with
``λ = (g + sqrt(g² + 4))/2``, is kept with probability ``exp(-(Z - λ)²/2)``, that is if another exponential number is at
least ``(Z - λ)²/2``. The classes below all bins are thinned in the same way, by a walk over the cells of all classes in
which those that stand in a bin are passed over.

*Completion.* In a draw in which fewer than k classes exceed u, all others are drawn, given that they do not.

Draws are made side by side; the k largest of each are found by exchanges of whole rows of draws.

NumPy's generator SFC64, seeded from torch's generator, makes normals and exponentials by the ziggurat's method from
integers of 52 and 53 bits. Exact numbers can be drawn along with them that lead to the same decisions but where an
integer lies next to one at which a decision turns: of the ziggurat, of a rejection, and of the number of cells passed
over. With fewer than 16 decisions for a cell, the total variation between a draw of L classes and an exact one is at
most ``16 L 2^-52``, below 1e-6 up to 10^8 classes; rounding aside, as in the full draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._noised.drawn import DrawnHinge, KeptDraws

__all__ = ["NumbaNoisedHinge", "draw", "refusal"]

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # half precision becomes float32 first
MOST_K = 64  # the k largest are found in k steps per value
LEAST_EPSILON = 1e-300  # its reciprocal is finite
SPARE = 2.5  # standard deviations of the number that exceeds the threshold, by which more are wanted than k
LEAST_WORK = (
    4800  # draws by one generator in one thread, at least: starting one takes as long as some hundred
)
ROW_COST = 20  # draws that take as long as all else that is done for a row
LONG = 64  # classes of a row; in a shorter one a draw costs the less
MOST_SCORES = 2**20  # of a generator's rows, likewise
MOST_PARTS = 16  # of the rows of a seed, each with a generator of its own


def refusal(scores: Tensor, k: int, epsilon: float) -> str | None:
    """Why the kernel cannot draw for these scores ``(N, L, ...)``."""
    if k > MOST_K:
        return f"k is above {MOST_K}"
    if not epsilon > LEAST_EPSILON:
        return f"epsilon is at most {LEAST_EPSILON}"
    return numba.refusal(scores, DTYPES)


def draw(scores: Tensor, k: int, epsilon: float, samples: int, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The k-th largest's classes ``(N, B)`` and mean noise ``(N,)`` for scores ``(N, L)``.

    Each seed serves an equal share of the rows, and makes the draws that it would make for these alone. Rows with NaN
    or +inf have NaN for noise, rows with fewer than k classes -inf, and both -1 for classes.
    """
    kernels, epsilon = _kernels(), float(epsilon)  # a whole number would be compiled for anew
    rows, size = scores.shape
    classes = torch.empty(rows, samples, dtype=torch.int64)
    noise = torch.empty(rows, dtype=scores.dtype)
    arrays = [tensor.numpy() for tensor in (scores.detach().contiguous(), classes, noise)]
    wanted = k + SPARE * math.sqrt(k) + 1
    share = rows // len(seeds)
    work = share * (ROW_COST + samples) * min(size, LONG) // LONG
    parts = min(MOST_PARTS, 1 + work // LEAST_WORK + share * size // MOST_SCORES)

    def run(begin: int, end: int) -> None:
        for job in range(begin, end):
            i, part = divmod(job, parts)
            own = slice(i * share + share * part // parts, i * share + share * (part + 1) // parts)
            inputs, *results = (array[own] for array in arrays)
            room, generator = kernels.room_for(inputs, k, samples), kernels.generator(seeds[i], part)
            kernels.draw_rows(inputs, k, epsilon, wanted, kernels.tables(), generator, room, *results)

    numba.in_parts(run, len(seeds) * parts, at_least=1)
    return classes, noise


@dataclass(frozen=True)
class NumbaNoisedHinge(DrawnHinge):
    """The noised top-K hinge of rows at K, ε and B in two kernels."""

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        margin: float | Tensor,
        seeds: Tensor,
        *,
        with_gradient: bool,  # noqa: ARG002
    ) -> tuple[Tensor, KeptDraws]:
        """The losses, and what the draws were."""
        scores = scores.contiguous()
        classes, noise = draw(scores, self.k + 1, self.epsilon, self.samples, seeds.tolist())
        margins = margin if isinstance(margin, Tensor) else torch.tensor([margin])
        losses, active = torch.empty_like(noise), torch.empty_like(noise)
        inputs = [numba.array(tensor) for tensor in (scores, labels.reshape(-1), margins.to(scores.dtype))]
        results = [tensor.numpy() for tensor in (classes, noise, losses, active)]
        _hinge_kernels().hinges(*inputs, self.ignore_index, *results)
        return losses, KeptDraws(active, classes)

    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: KeptDraws
    ) -> tuple[Tensor | None, ...]:
        """The gradient with respect to the scores and the margins."""
        out = torch.zeros_like(scores, memory_format=torch.contiguous_format)
        tensors = (labels.reshape(-1), kept.places, kept.active, gradient)
        _hinge_kernels().hinge_gradients(*(numba.array(tensor) for tensor in tensors), out.numpy())
        return out, gradient * kept.active, None


def _kernels() -> Any:
    from topk_losses._noised import cpu_kernels  # noqa: PLC0415  # imports Numba

    return cpu_kernels


def _hinge_kernels() -> Any:
    from topk_losses._noised import cpu_hinge_kernels  # noqa: PLC0415  # imports Numba

    return cpu_hinge_kernels
