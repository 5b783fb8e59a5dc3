r"""Triton kernels of the soft top-K by a threshold, one pair for all shapes: a program per row, read once each way.

In the forward pass the scores of a row stay in registers. The K-th and the (K+1)-th largest are found by repeatedly
removing the largest value with all its ties, until K are removed. The threshold b is relative to the (K+1)-th score and
in units of τ; ``h = gap - b`` is its distance below the K-th. Every class has a distance ``y <= 0``: for the K best it
is the K-th score minus their own, for the others their own minus the (K+1)-th. A membership of the others is
``F(y - b)``, and what one of the K best lacks of 1 is ``F(y - h)``. Newton's method between two bounds finds the b at
which both sums have equal logarithms. To avoid underflow, sums are in units of the density at ``c = max(level, 0)``,
which is ``e^-c``, or ``e^(-c²/2)`` for the Gaussian. For bounded shapes the difference of the sums is used instead.

Ties of the K-th score that do not fit into the K best count as others, at distance 0. Computations over classes are
float32, those per row float64. Factors that need float64 come in two float32 halves.
"""

import triton
import triton.language as tl

from topk_losses._soft_topk.shapes import CODES

__all__ = ["soft_backward", "soft_forward"]

LAPLACE = tl.constexpr(CODES["laplace"])
GAUSSIAN = tl.constexpr(CODES["gaussian"])
CLIP = tl.constexpr(CODES["clip"])
POWER = tl.constexpr(CODES["power"])
MIDPOINT = tl.constexpr(CODES["midpoint"])
LOG2E = tl.constexpr(1.4426950408889634)
LOG2 = tl.constexpr(0.6931471805599453)
ROOT = tl.constexpr(2.5066282746310002)  # sqrt(2 π)
LARGEST = tl.constexpr(3.4028234663852886e38)
FURTHEST = tl.constexpr(1e18)  # the bound of distances, so that their squares are finite
MOST_STEPS = tl.constexpr(60)  # four to eight are needed


@triton.jit
def _mills(t):
    """``Φ(-t) / φ(t)`` for t >= 0: a polynomial divided by ``t + 4``, with a relative error of 4e-8 before rounding."""
    r = 1 / (t + 4)
    y = 1 - 8 * r
    ratio = -0.0188282244837 + y * (
        -0.00871205692597 + y * (0.00391673720187 + y * (0.000323453865721 - y * 0.00039288920514))
    )
    ratio = -1.52377028095 + y * (0.970410123558 + y * (-0.467553658441 + y * (0.151387705869 + y * ratio)))
    return (1.89321905041 + y * ratio) * r


@triton.jit
def _below(y, level, SHAPE: tl.constexpr):
    """``F(y - level)`` and its density for ``y <= 0``, in units of the density at ``max(level, 0)``."""
    unit = tl.maximum(level, 0.0)
    if SHAPE == GAUSSIAN:
        y = tl.maximum(y, -FURTHEST)
        density = tl.exp2((y + (unit - level)) * (unit + level - y) * (LOG2E / 2))
        one = density * _mills(tl.abs(level - y))
        return tl.where(level >= y, one, ROOT - one), density
    u = tl.exp2((y + (unit - level)) * LOG2E)
    v = tl.exp2((y - level) * LOG2E)
    if SHAPE == LAPLACE:
        w = 1 / tl.maximum(v, 1.0)
        return u * w * (1 - 0.5 * w), 0.5 * u * w * w
    q = 1 / (1 + v)
    return u * q, u * q * q


@triton.jit
def _within(y, level, best, SHAPE: tl.constexpr):
    """Membership and density of the bounded shapes, unscaled; for the K best, what the membership lacks of 1."""
    x = tl.where(best, level - y, y - level)
    inside = ((x > 0) & (x < 1)).to(x.dtype)
    x = tl.minimum(tl.maximum(x, 0.0), 1.0)
    if SHAPE == POWER:
        inside = 3 * x * x * inside
        x = x * x * x
    return tl.where(best, 1 - x, x), inside


@triton.jit
def _parts(y, level, best, SHAPE: tl.constexpr):
    if (SHAPE == CLIP) | (SHAPE == POWER):
        return _within(y, level, best, SHAPE)
    return _below(y, level, SHAPE)


@triton.jit
def _sums(y, best, tied, b, h, tied_best, tied_others, SHAPE: tl.constexpr):
    """What the K best lack of 1, the others' memberships, and the densities of both: sums in float64.

    Of the scores equal to the K-th largest (``tied``), ``tied_best`` count among the K best, ``tied_others`` do not.
    """
    ahead = tl.minimum(h, FURTHEST).to(tl.float32)
    behind = tl.minimum(b, FURTHEST).to(tl.float32)
    one, density = _parts(y, tl.where(best, ahead, behind), best, SHAPE)
    tied_value, tied_density = _parts(ahead * 0, ahead, True, SHAPE)
    other, other_density = _parts(behind * 0, behind, False, SHAPE)
    above = best & (tied == 0)
    lacking = tl.sum(tl.where(above, one, 0.0), 0).to(tl.float64) + tied_best * tied_value
    held = tl.sum(tl.where(best, 0.0, one), 0).to(tl.float64) + tied_others * other
    slope = tl.sum(tl.where(above, density, 0.0), 0).to(tl.float64) + tied_best * tied_density
    other_slope = tl.sum(tl.where(best, 0.0, density), 0).to(tl.float64) + tied_others * other_density
    return lacking, held, slope, other_slope


@triton.jit
def _logarithm_of_units(b, h, SHAPE: tl.constexpr):
    """The logarithm of the unit of the K best's sums divided by that of the others' sums."""
    behind = tl.maximum(b, 0.0)
    ahead = tl.maximum(h, 0.0)
    if SHAPE == GAUSSIAN:
        return (behind - ahead) * (behind + ahead) / 2
    return behind - ahead


@triton.jit
def _threshold(y, best, tied, gap, tied_best, tied_others, below, beyond, SHAPE: tl.constexpr):
    """The threshold b, between ``-below`` and ``gap + beyond``."""
    bounded: tl.constexpr = (SHAPE == CLIP) | (SHAPE == POWER)
    small: tl.constexpr = 1e-7 if bounded else 5e-4  # the size of a last step; see SMALL in the CPU kernels
    low = gap * 0 - below
    high = gap + beyond
    if bounded:
        high = gap * 0
    b = tl.minimum(tl.maximum(gap / 2, low), high)
    steps = 0
    while steps < MOST_STEPS:
        lacking, held, slope, other_slope = _sums(y, best, tied, b, gap - b, tied_best, tied_others, SHAPE)
        if bounded:
            value = lacking - held
            slope = slope + other_slope
        else:
            value = tl.log(lacking / held) + _logarithm_of_units(b, gap - b, SHAPE)
            slope = slope / lacking + other_slope / held
        high = tl.where(value > 0, b, high)
        low = tl.where(value > 0, low, b)
        step = -value / tl.where(slope > 0, slope, 1.0)
        # Strictly between the bounds: on a piecewise linear function the steps can alternate between two corners.
        last = (value == 0) | ((slope > 0) & (tl.abs(step) < small))
        newton = (slope > 0) & (b + step > low) & (b + step < high)
        b = tl.where(last | newton, b + step, (low + high) / 2)
        steps = tl.where(last, MOST_STEPS, steps + 1)
    return b


@triton.jit
def _largest(values, k):
    """The K-th and the (K+1)-th largest value; how many ties of the K-th are among the K largest, and after them."""
    kth = tl.max(values, 0)
    equal = tl.sum((values == kth).to(tl.int32), 0)
    count = equal
    while (count < k) & (kth > -float("inf")):
        kth = tl.max(tl.where(values < kth, values, -float("inf")), 0)
        equal = tl.sum((values == kth).to(tl.int32), 0)
        count += equal
    following = tl.max(tl.where(values < kth, values, -float("inf")), 0)
    tied_best = equal - tl.maximum(count - k, 0)
    return kth, tl.where(count > k, kth, following), tied_best, equal - tied_best


@triton.jit
def _log1p(small):
    """``log(1 + small)`` for ``|small| <= 1``."""
    return tl.where(tl.abs(small) < 1e-5, small * (1 - 0.5 * small), tl.log(1 + small))


@triton.jit
def _of_label_gaussian(x, LOG: tl.constexpr):
    size = tl.abs(x)
    ratio = _mills(size)
    density = tl.exp(-size * size / 2) / ROOT
    tail = density * ratio
    if LOG:
        far = size * size / 2 - tl.log(ratio / ROOT)
        return tl.where(x < 0, far, -_log1p(-tail)), tl.where(x < 0, 1 / ratio, density / (1 - tail))
    return tl.where(x > 0, tail, 1 - tail), density


@triton.jit
def _of_label(x, SHAPE: tl.constexpr, LOG: tl.constexpr):
    """The loss of a label at distance x from the threshold, and minus its derivative with respect to x, float64."""
    if (SHAPE == CLIP) | (SHAPE == POWER):
        return _within(x * 0, x, True, SHAPE)
    if SHAPE == GAUSSIAN:
        return _of_label_gaussian(x, LOG)
    small = tl.exp(-tl.abs(x))
    if SHAPE == LAPLACE:
        tail = small / 2
        if LOG:
            loss = tl.where(x > 0, -_log1p(-tail), LOG2 - x)
            return loss, tl.where(x > 0, tail / (1 - tail), 1.0)
        return tl.where(x > 0, tail, 1 - tail), tail
    miss = tl.where(x > 0, small, 1.0) / (1 + small)
    if LOG:
        return _log1p(small) + tl.maximum(-x, 0.0), miss
    return miss, small / ((1 + small) * (1 + small))


@triton.jit
def _distances(values, kth, reference, inverse):
    """``y <= 0`` of every class, and whether its score is at least the K-th largest."""
    best = values >= kth
    return tl.where(best, kth - values, tl.maximum(values, -LARGEST) - reference) * inverse, best


@triton.jit
def soft_forward(
    scores,  # (N, L) float32; rows are `stride` apart
    labels,  # (N,) int64
    losses,  # (N,) float32
    kept,  # (N, 7) float32: K-th and (K+1)-th largest, h and b, the factors of both densities, the loss's slope
    stride,
    classes,
    k,
    inverse_high,  # 1 / τ
    inverse_low,
    below,
    beyond,
    SHAPE: tl.constexpr,
    LOG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the losses, and what the gradient needs besides the scores."""
    row = tl.program_id(0).to(tl.int64)
    kept += row * 7
    column = tl.arange(0, BLOCK)
    inverse = tl.full([], inverse_high, tl.float64) + inverse_low
    entries = tl.load(scores + row * stride + column, mask=column < classes, other=-float("inf"))
    own = tl.load(scores + row * stride + tl.load(labels + row))
    finite = entries < float("inf")  # true for -inf, false for NaN
    broken = tl.min(finite.to(tl.int32), 0) == 0
    values = tl.where(finite, entries, -float("inf"))
    kth, reference, tied_best, tied_others = _largest(values, k)
    few = reference == -float("inf")  # at most K classes are unmasked: all of them are in the top K
    kth = tl.where(few, 0.0, kth)
    reference = tl.where(few, 0.0, reference)
    gap = (kth.to(tl.float64) - reference.to(tl.float64)) * inverse
    b = gap / 2
    ahead = gap * 0
    behind = gap * 0
    if SHAPE != MIDPOINT:
        y, best = _distances(values, kth, reference, inverse.to(tl.float32))
        tied = values == kth
        b = _threshold(y, best, tied, gap, tied_best, tied_others, below, beyond, SHAPE)
        _, _, slope, other_slope = _sums(y, best, tied, b, gap - b, tied_best, tied_others, SHAPE)
        if (SHAPE == CLIP) | (SHAPE == POWER):
            total = slope + other_slope
            ahead = tl.where(total > 0, 1 / tl.where(total > 0, total, 1.0), 0.0)
            behind = ahead
        else:
            unit = _logarithm_of_units(b, gap - b, SHAPE)
            ahead = tl.exp(tl.minimum(unit, 0.0))
            behind = tl.exp(tl.minimum(-unit, 0.0))
            total = slope * ahead + other_slope * behind
            ahead = ahead / total
            behind = behind / total
    x = (tl.maximum(own, -LARGEST).to(tl.float64) - reference.to(tl.float64)) * inverse - b
    loss, slope = _of_label(x, SHAPE, LOG)
    loss = tl.where(broken, float("nan"), tl.where(few, 0.0, loss))
    # The slope of a masked label is larger than float32; infinity times 0 is NaN. (A minimum would drop NaN.)
    slope = tl.where(few, 0.0, tl.where(slope * inverse > LARGEST, LARGEST, slope * inverse))
    tl.store(losses + row, loss.to(tl.float32))
    tl.store(kept, kth)
    tl.store(kept + 1, reference)
    tl.store(kept + 2, tl.minimum(gap - b, FURTHEST).to(tl.float32))
    tl.store(kept + 3, tl.minimum(b, FURTHEST).to(tl.float32))
    tl.store(kept + 4, ahead.to(tl.float32))
    tl.store(kept + 5, behind.to(tl.float32))
    tl.store(kept + 6, tl.where(broken, float("nan"), slope).to(tl.float32))


@triton.jit(do_not_specialize=["gradient_stride"])
def soft_backward(
    scores,
    labels,
    gradients,  # (N,) float32, `gradient_stride` apart: 0 for the expanded gradient of a mean or a sum
    kept,  # (N, 7), from the forward pass
    out,  # (N, L) contiguous float32
    stride,
    gradient_stride,
    classes,
    inverse,
    SHAPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradient with respect to the scores: a multiple of ``F'_j / Σ F' - 1[j = y]``."""
    row = tl.program_id(0).to(tl.int64)
    kept += row * 7
    factor = tl.load(gradients + row * gradient_stride) * tl.load(kept + 6)
    column = tl.arange(0, BLOCK)
    inside = column < classes
    gradient = tl.zeros([BLOCK], tl.float32) + factor
    if (factor < 0) | (factor > 0):  # else the gradient is 0 or NaN for all classes
        values = tl.load(scores + row * stride + column, mask=inside, other=-float("inf"))
        kth = tl.load(kept)
        reference = tl.load(kept + 1)
        if SHAPE == MIDPOINT:
            first = tl.min(tl.where(values == kth, column, BLOCK), 0)
            second = tl.min(tl.where((values == reference) & (column != first), column, BLOCK), 0)
            share = tl.where((column == first) | (column == second), 0.5, 0.0)
        else:
            y, best = _distances(values, kth, reference, inverse)
            level = tl.where(best, tl.load(kept + 2), tl.load(kept + 3))
            _, density = _parts(y, level, best, SHAPE)
            share = density * tl.where(best, tl.load(kept + 4), tl.load(kept + 5))
        gradient = (share - tl.where(column == tl.load(labels + row), 1.0, 0.0)) * factor
    tl.store(out + row * classes + column, gradient, mask=inside)
