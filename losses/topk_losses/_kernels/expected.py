r"""The expected k-th largest of independent Gaussians, compiled for the CPU.

What ``_rank_quadrature.py`` does in torch. Scores x are in units of ε from a centre that at least k classes reach;
``p_i(t) = P(X_i > t)``, A, F and the sweeps are as there. All is in float64, whatever the scores are. Other than
there:

*Candidates.* A class at x is the k-th largest, or its absence would change which class is, only if it beats one of
any k classes: of those at ``b_m``, from the centre upwards, with at most the probability ``Σ_m Φ((x - b_m) / √2)``.
For x < -7 that is below ``r Φ(x / √2)``, ``r = Σ_m exp(-7 b_m / 2)``, since ``Q(u + v) <= Q(u) exp(-u v)``. First
those with ``x < -√2 Φ⁻¹(1 - δ / (k L))`` are left out, then of the C others those with ``x < -√2 Φ⁻¹(1 - δ / (r
C))``: with at most 2 δ for all together.

*Nodes* stand at the multiples of a step, 1/3 or that over a power of 2, so that Φ and φ at all of them come from one
table and a few terms of Taylor's series. Blocks of 16 are added upwards until F is above 1 - δ and downwards until it
is below δ: F is monotone, so that no window has to be looked for. Classes that cannot exceed a block's nodes are
skipped there, and those that are certain to lower k.

*Error.* With a step h the trapezoid rule errs by about ``w q``, ``q = exp(-2 (πσ/h)²)``, on a rise of F with width σ
and weight w, and by ``D = w q^¼`` with every other node. D is measured: from the means by even and odd nodes, and
from how far the probabilities' sum is from 1. σ is taken to be at least ``1 / (√k (1 + √(2 log(C/k))))``, which is
0.5 to 0.9 of what C equal scores have. Where ``D q^¾`` may then exceed 3e-7 (float64 scores: 1e-10), or D 1e-4
(1e-6), a finer lattice follows, chosen by the variance that was found.

*Crowds.* Of more than 160 candidates, and more than 8 k, the best 4 k and some more are swept. The others enter by
power sums of ``p / (1 - p)`` and by ``Σ log(1 - p)``, as in ``_rank_crowd.py``. These are sums of smooth functions of
x, and so is a class's slope, ``∫ φ(t - x) P(exactly k - 1 of the others exceed t) dt``. Cells of width 1/2 with more
than 8 classes (12 for float64 scores) are therefore stood for by as many Chebyshev points, with the masses with which
every polynomial of their degree has the sum over the points that it has over the classes; slopes are interpolated
between the points. So a thousand equal scores cost no more than forty points.

Over spread, close, equal, stepped and distant rows, k up to 65 and L up to 20,000, values and probabilities differed
from those of fine grids and adaptive quadrature by 3e-7 at the worst for float32 scores and 1e-11 for float64.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from topk_losses._kernels.compiled import in_parts, takes_on_cpu

if TYPE_CHECKING:
    from topk_losses._kernels.expected_numba import Rules, Tables

__all__ = ["LARGEST_RANK", "Expectations", "expectations", "slopes", "takes_expected"]

LARGEST_RANK = 65  # of k: beyond, the powers of a crowd's sums were not looked at
COARSEST = 1 / 3  # step of the first lattice
LATTICES = 6
FURTHEST = 9.5  # from a node, of the tables
LEAST_GROUPS = 64
MANY = 160  # candidates; more are a crowd
CELL = 0.5  # of a crowd
AT_LEAST = 32  # rows for a thread


class Precision(NamedTuple):
    """How precise the quadrature is."""

    tail: float
    """δ."""
    noise: float
    """Noise that is as good as impossible."""
    target: float
    """Of the error."""
    cap: float
    """Of the difference between the halves of a lattice."""
    terms: int
    """Chebyshev points of a crowd's cell."""


SINGLE = Precision(1e-8, 6.0, 3e-7, 1e-4, 8)
DOUBLE = Precision(1e-12, 8.2, 1e-10, 1e-6, 12)


class Expectations(NamedTuple):
    """The expected k-th largest of each row, and who it is."""

    centre: Tensor
    """A score near the k-th largest ``(N,)``, float64."""
    largest: Tensor
    """The largest score ``(N,)``, float64."""
    shift: Tensor
    """From the centre to the expectation, in units of ε ``(N,)``, float64."""
    classes: Tensor
    """Those that can be the k-th largest, row after row, int32."""
    probabilities: Tensor
    """With which they are, in the scores' dtype; empty if nobody asked."""
    offsets: Tensor
    """Where a row's first class is ``(N,)``."""
    counts: Tensor
    """How many there are ``(N,)``."""


def takes_expected(scores: Tensor, k: int, epsilon: float) -> bool:
    """Whether the kernels can have these scores ``(N, L)``, odd rows apart."""
    return epsilon > 0 and k <= LARGEST_RANK and len(scores) > 0 and takes_on_cpu(scores)


def expectations(scores: Tensor, k: int, epsilon: float, with_slope: bool) -> Expectations | None:
    """The expected k-th largest of ``N(s_i, ε²)`` for rows ``(N, L)``.

    None if there is a row with NaN or +inf, or with fewer than k classes above -inf.
    """
    from topk_losses._kernels import expected_numba  # noqa: PLC0415  # compiles

    precision = SINGLE if scores.dtype == torch.float32 else DOUBLE
    scores = scores.detach().contiguous()
    rows, classes = scores.shape
    depth = _depth(precision.tail, k * classes)
    centre, largest, rivals = torch.empty(3, rows, dtype=torch.float64).unbind(0)
    counts = torch.empty(rows, dtype=torch.int64)
    epsilon = float(epsilon)
    places = _arrays(centre, largest, rivals, counts)
    looking = [*_arrays(scores), k, epsilon, _groups(classes, k), depth, *places]
    in_parts(lambda *part: expected_numba.levels(*looking, *part), rows, AT_LEAST)
    ends = counts.cumsum(0)
    if counts.min() < 0:
        return None
    total = int(ends[-1])
    found = Expectations(
        centre,
        largest,
        torch.empty_like(centre),
        torch.empty(total, dtype=torch.int32),
        torch.empty(total if with_slope else 0, dtype=scores.dtype),
        ends.sub_(counts),
        counts,
    )
    columns = _arrays(scores, centre, rivals, found.offsets, counts)
    tables = (_depths(precision.tail), _lattices(), _inverse(precision.terms))
    results = _arrays(found.shift, found.classes, found.probabilities)
    summing = [k, epsilon, *columns, *tables, _rules(precision, k, depth), with_slope, *results]
    in_parts(lambda *part: expected_numba.expectations(*summing, *part), rows, AT_LEAST)
    return found


def slopes(found: Expectations, gradient: Tensor, labels: Tensor | None, scores: Tensor) -> Tensor:
    """Each row's probabilities times its gradient ``(N,)``, less the gradient at its label ``(N,)``."""
    from topk_losses._kernels import expected_numba  # noqa: PLC0415

    slope = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    arrays = _arrays(
        found.classes,
        found.probabilities,
        found.offsets,
        found.counts,
        gradient.to(scores.dtype).contiguous(),
        slope,
    )
    in_parts(lambda *part: expected_numba.scatter(*arrays, *part), len(scores), AT_LEAST)
    return slope if labels is None else slope.scatter_add_(1, labels.unsqueeze(1), -gradient.unsqueeze(1))


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.numpy() for tensor in tensors]


def _groups(classes: int, k: int) -> int:
    """So many that the k-th largest maximum is nearly the k-th largest score."""
    groups = max(LEAST_GROUPS, 16 * math.ceil(k / 4))
    return groups if classes >= 2 * groups else classes


def _depth(tail: float, rivals: float) -> float:
    """How far below the centre a class is if it beats one of so many with the probability of a tail."""
    return -math.sqrt(2) * NormalDist().inv_cdf(tail / rivals)


@functools.cache
def _depths(tail: float) -> Any:
    """The depths for 1, 2, 4, … pairs of rivals."""
    return torch.tensor([_depth(tail, 2.0**j) for j in range(48)], dtype=torch.float64).numpy()


@functools.cache
def _rules(precision: Precision, k: int, depth: float) -> Rules:
    from topk_losses._kernels.expected_numba import Rules  # noqa: PLC0415

    most = 1 / (1 + 10 ** -min(6.0, 100 / max(1, k - 1)))  # no power leaves a float's range
    return Rules(
        depth, precision.noise, precision.tail, precision.target, precision.cap, most, max(MANY, 8 * k), CELL
    )


@functools.cache
def _inverse(terms: int) -> Any:
    """From values at Chebyshev's points in [-1, 1] to a polynomial's terms, the constant first."""
    return torch.linalg.inv(torch.linalg.vander(_chebyshev(terms))).numpy()


def _chebyshev(terms: int) -> Tensor:
    return torch.cos(math.pi * (torch.arange(terms, dtype=torch.float64) + 0.5) / terms)


@functools.cache
def _lattices() -> tuple[Tables, ...]:
    return tuple(_tables(COARSEST / 2**level) for level in range(LATTICES))


def _tables(step: float) -> Tables:
    """Φ, φ and log(1 - Φ) at ``x - t``, t being a lattice's nodes, for a few x between two of them."""
    from topk_losses._kernels.expected_numba import BLOCK, LOG_TERMS, PHASES, Tables  # noqa: PLC0415

    half = math.ceil(FURTHEST / step) + BLOCK
    nodes = step * torch.arange(half, -half - 1, -1, dtype=torch.float64)
    width = step / PHASES
    u = nodes + width * torch.arange(PHASES, dtype=torch.float64).view(-1, 1, 1)  # phase, term, node
    values = torch.cat([torch.special.ndtr(u), torch.exp(-u * u / 2) / math.sqrt(2 * math.pi)], 1)
    rest = _chebyshev(LOG_TERMS) / 2
    logs = torch.linalg.inv(torch.linalg.vander(rest)) @ torch.special.log_ndtr(
        -u - width * rest.unsqueeze(1)
    )
    return Tables(values.flatten().numpy(), logs.flatten().numpy(), len(nodes), step, 1 / width)
