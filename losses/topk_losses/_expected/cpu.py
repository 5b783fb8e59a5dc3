r"""The expected k-th largest of independent Gaussians on the CPU, with kernels compiled by Numba.

The method is that of ``quadrature.py``. Scores x are in units of ε from a centre that at least k classes reach;
``p_i(t) = P(X_i > t)``, A, F and the sweeps are defined there. Everything is computed in float64 for scores of any
dtype. The differences from ``quadrature.py`` are these:

*Candidates.* A class at x can be the k-th largest, or change by its absence which class is, only if it exceeds one of
any k given classes. Take k classes at ``b_m``, from the centre upwards: the probability is at most
``Σ_m Φ((x - b_m) / √2)``. For x < -7 this is below ``r Φ(x / √2)`` with ``r = Σ_m exp(-7 b_m / 2)``, since
``Q(u + v) <= Q(u) exp(-u v)`` for Q = 1 - Φ. First the classes with ``x < -√2 Φ⁻¹(1 - δ / (k L))`` are left out, then
of the C remaining ones those with ``x < -√2 Φ⁻¹(1 - δ / (r C))``, with a total probability of at most 2 δ.

*Nodes* are the multiples of a step, which is 1/3 divided by a power of 2. So Φ and φ at all nodes come from one table
and a few Taylor terms. Blocks of 16 nodes are added upwards until F is above 1 - δ, and downwards until it is below δ;
as F is monotone, no window has to be searched for. In each block, classes that cannot exceed its nodes are skipped, and
those certain to exceed them reduce k by 1.

*Error.* With a step h, the trapezoid rule has an error of about ``w q``, ``q = exp(-2 (πσ/h)²)``, on a rise of F with
width σ and weight w; with every second node it is ``D = w q^¼``. D is measured by the difference of the means over even
and odd nodes, and by the deviation of the probabilities' sum from 1. σ is assumed to be at least
``1 / (√k (1 + √(2 log(C/k))))``, which is 0.5 to 0.9 of its value for C equal scores. If with this σ ``D q^¾`` may
exceed 3e-7 (float64 scores: 1e-10), or if D exceeds 1e-4 (1e-6), a finer lattice follows, chosen by the variance found.

*Crowds.* With more than 160 candidates and more than 8 k, slightly more than the best 4 k are swept. The others, the
crowd, enter through power sums of ``p / (1 - p)`` and through ``Σ log(1 - p)``, as in ``crowd.py``. These are sums of
smooth functions of x, and so is the derivative for a class, ``∫ φ(t - x) P(exactly k - 1 of the others exceed t) dt``.
So cells of width 1 (float64 scores: 1/2) with more than 8 classes (12) are represented by 8 (12) Chebyshev points.
Their masses make the sum of any polynomial of the points' degree equal to that over the classes, and derivatives are
interpolated between the points. A thousand equal scores thus cost no more than forty points.

For spread, close, equal, stepped and distant rows, k up to 65 and L up to 20,000, values and probabilities differed
from those of fine grids and adaptive quadrature by at most 3e-7 for float32 scores and 2e-11 for float64.

*Last digits.* The process that compiles these kernels gives float64 gradients of crowds that differ by up to 4e-13 of
their value from those of later processes, which read the machine code from disk. Losses are the same, and the layout of
the scores changes nothing. Probably the compiling process has two copies of the functions that are not inlined, and may
sum in another order (``summing``).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.autograd import Rule
from topk_losses._core.backends import lazily
from topk_losses._expected.plain import relative

if TYPE_CHECKING:
    from topk_losses._expected.tails_kernels import Rules, Tables

__all__ = ["LARGEST_RANK", "Levels", "NumbaExpected", "levels", "refusal"]

KERNELS = lazily("topk_losses._expected.cpu_kernels")
LARGEST_RANK = 65  # the largest k; for larger ones the accuracy of a crowd's power sums was not examined
COARSEST = 1 / 3  # step of the first lattice
LATTICES = 6
FURTHEST = 9.5  # the range of the tables around a node, in units of ε
LEAST_GROUPS = 64
CROWDED = 160  # in rows with more candidates, all but the best of them are a crowd
AT_LEAST = 32  # rows per thread


class Precision(NamedTuple):
    """The precision of the quadrature."""

    tail: float
    """δ, the probability left out at each end."""
    noise: float
    """Noise of this size is treated as impossible."""
    target: float
    """The error allowed."""
    cap: float
    """The difference allowed between even and odd nodes."""
    terms: int
    """Chebyshev points per cell of a crowd."""
    cell: float
    """The width of such a cell, in units of ε."""


SINGLE = Precision(1e-8, 6.0, 3e-7, 1e-4, 8, 1.0)
DOUBLE = Precision(1e-12, 8.2, 1e-10, 1e-6, 12, 0.5)


class Levels(NamedTuple):
    """Results of a first pass over the rows ``(N, L)``, each ``(N,)``."""

    centre: Tensor
    """A score near the k-th largest, float64."""
    largest: Tensor
    """The largest score, float64."""
    rivals: Tensor
    """r: the number of classes at the centre that is equivalent to the k best ones, float64."""
    counts: Tensor
    """An upper bound of the number of candidates; -1 for rows with NaN, +inf or fewer than k classes."""


class Kept(NamedTuple):
    """What the gradient needs."""

    classes: Tensor
    """The classes that can be the k-th largest, in the order of the rows, int32."""
    probabilities: Tensor
    """Their probabilities to be it, in the scores' dtype; empty if no gradient is needed."""
    offsets: Tensor
    """The position of each row's first class ``(N,)``."""
    counts: Tensor
    """The number of each row's classes ``(N,)``."""


def refusal(scores: Tensor, k: int, epsilon: float) -> str | None:
    """Why the kernels do not take these scores ``(N, L)``."""
    if not epsilon > 0:
        return "epsilon is 0"
    if k > LARGEST_RANK:
        return f"k is above {LARGEST_RANK}"
    return numba.refusal(scores) if len(scores) else "there are no rows"


def levels(scores: Tensor, k: int, epsilon: float) -> Levels:
    """The first pass over rows ``(N, L)``."""
    rows, classes = scores.shape
    centre, largest, rivals = scores.new_empty(3, rows, dtype=torch.float64).unbind(0)
    levels = Levels(centre, largest, rivals, scores.new_empty(rows, dtype=torch.int64))
    depth = _depth(_precision(scores).tail, k * classes)
    looking = [numba.array(scores), k, float(epsilon), _groups(classes, k), depth, *_arrays(*levels)]
    numba.in_parts(lambda *part: KERNELS().levels(*looking, *part), rows, AT_LEAST)
    return levels


@dataclass(frozen=True, eq=False)
class NumbaExpected(Rule[Any]):
    """The expected k-th largest of ``N(s_i, ε²)``, minus the label's score or minus the largest, taken as constant.

    Attributes:
        k: Rank.
        epsilon: ε.
        levels: The results of the first pass; no row has NaN, +inf or too few classes.
        labelled: Whether the label's score is subtracted, rather than the largest.
    """

    keeps = Kept

    k: int
    epsilon: float
    levels: Levels
    labelled: bool

    def plain(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The values in torch."""
        return relative(scores, labels if self.labelled else None, self.k, self.epsilon)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Any]:
        """The values, and what the gradient needs."""
        shift, kept = self._expectations(scores, with_gradient and scores.requires_grad)
        own = scores.gather(1, labels).squeeze(1) if self.labelled else self.levels.largest
        return self.levels.centre - own + self.epsilon * shift, kept

    def _expectations(self, scores: Tensor, with_slope: bool) -> tuple[Tensor, Kept]:
        """The expectations relative to the centres, in units of ε, float64 ``(N,)``, and the classes' probabilities."""
        precision, (rows, classes) = _precision(scores), scores.shape
        counts = self.levels.counts.clone()
        ends = counts.cumsum(0)
        total, shift = int(ends[-1]), torch.empty_like(self.levels.centre)
        shares = scores.new_empty(total if with_slope else 0)
        kept = Kept(counts.new_empty(total, dtype=torch.int32), shares, ends.sub_(counts), counts)
        columns = _arrays(self.levels.centre, self.levels.rivals, kept.offsets, counts)
        tables = (_depths(precision.tail), _lattices(), _inverse(precision.terms))
        rules = _rules(precision, self.k, _depth(precision.tail, self.k * classes))
        results = _arrays(shift, kept.classes, kept.probabilities)
        inputs = self.k, float(self.epsilon), numba.array(scores), *columns, *tables, rules, with_slope
        numba.in_parts(lambda *part: KERNELS().expectations(*inputs, *results, *part), rows, AT_LEAST)
        return shift, kept

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor]:
        """The gradient: each row's probabilities times that of its value, minus this at the label."""
        slope = torch.zeros_like(scores, memory_format=torch.contiguous_format)
        gradient = gradient.to(scores.dtype)
        arrays = [*_arrays(*kept), numba.array(gradient), slope.numpy()]
        numba.in_parts(lambda *part: KERNELS().scatter(*arrays, *part), len(scores), AT_LEAST)
        return (slope.scatter_add_(1, labels, -gradient.unsqueeze(1)) if self.labelled else slope,)


def _precision(scores: Tensor) -> Precision:
    return SINGLE if scores.dtype == torch.float32 else DOUBLE


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.numpy() for tensor in tensors]


def _groups(classes: int, k: int) -> int:
    """The number of groups, so large that the k-th largest maximum is close to the k-th largest score."""
    groups = max(LEAST_GROUPS, 16 * math.ceil(k / 4))
    return groups if classes >= 2 * groups else classes


def _depth(tail: float, rivals: float) -> float:
    """How far below the centre a class is that exceeds one of ``rivals`` classes there with probability ``tail``."""
    return -math.sqrt(2) * NormalDist().inv_cdf(tail / rivals)


@functools.cache
def _depths(tail: float) -> Any:
    """The depths for 1, 2, 4, … pairs of a class and a rival."""
    return torch.tensor([_depth(tail, 2.0**j) for j in range(48)], dtype=torch.float64, device="cpu").numpy()


@functools.cache
def _rules(precision: Precision, k: int, depth: float) -> Rules:
    from topk_losses._expected.tails_kernels import Rules  # noqa: PLC0415

    most = 1 / (1 + 10 ** -min(6.0, 100 / max(1, k - 1)))  # so that powers of p / (1 - p) do not overflow
    tail, noise, target, cap, _, cell = precision
    return Rules(depth, noise, tail, target, cap, most, max(CROWDED, 8 * k), cell)


@functools.cache
def _inverse(terms: int) -> Any:
    """The matrix from values at Chebyshev points in [-1, 1] to a polynomial's coefficients, the constant first."""
    return torch.linalg.inv(torch.linalg.vander(_chebyshev(terms))).numpy()


def _chebyshev(terms: int) -> Tensor:
    return torch.cos(math.pi * (torch.arange(terms, dtype=torch.float64, device="cpu") + 0.5) / terms)


@functools.cache
def _lattices() -> tuple[Tables, ...]:
    return tuple(_tables(COARSEST / 2**level) for level in range(LATTICES))


def _tables(step: float) -> Tables:
    """Tables of Φ, φ and log(1 - Φ) at ``x - t`` for the nodes t of a lattice and a few x between two nodes."""
    from topk_losses._expected.tails_kernels import BLOCK, LOG_TERMS, PHASES, Tables  # noqa: PLC0415  # noqa: PLC0415

    half = math.ceil(FURTHEST / step) + BLOCK
    nodes = step * torch.arange(half, -half - 1, -1, dtype=torch.float64, device="cpu")
    width = step / PHASES
    u = nodes + width * torch.arange(PHASES, dtype=torch.float64, device="cpu").view(
        -1, 1, 1
    )  # phase, term, node
    values = torch.cat([torch.special.ndtr(u), torch.exp(-u * u / 2) / math.sqrt(2 * math.pi)], 1)
    rest = _chebyshev(LOG_TERMS) / 2
    logs = torch.linalg.inv(torch.linalg.vander(rest)) @ torch.special.log_ndtr(
        -u - width * rest.unsqueeze(1)
    )
    return Tables(values.flatten().numpy(), logs.flatten().numpy(), len(nodes), step, 1 / width)
