r"""Triton kernels of the smooth top-K SVM: one program per row, the row read once forward and once backward.

In the forward pass the scores of a row stay in registers. Let e = exp(s / (K τ)) in units of the largest. The row is
*comparable* if its mass ``Σ e`` is at least 3K; then power sums give the polynomials (proof in ``symmetric.py``). In
other rows the largest values are taken out one after the other: the K largest, and further values above W / (2K) in
units of the K-th largest, where W is the mass of all values but the K - 1 largest in these units. As every (K-1)-subset
leaves at least the mass W to extend it with, ``K σ_K >= W σ_{K-1}``. So ``κ = a σ_{K-1} / σ_K <= 1/2`` for the largest
remaining value a, as the proof requires. At most 2K further values are taken out, since W includes all of them.

The values taken out go through the positive recursion of ``leading.py``, for each m over all of them at once, since
``Ê_m`` after each value is a cumulative sum. Let ``F_m = Ê_m Π_{m<l<=K} e_K / e_l``, and R the polynomials of the rest
in units of e_K. Then the convolution ``T = F * R`` gives the polynomials of all classes in these units, up to a common
factor, with ``T_K >= 1`` and ``T_{K-1} >= 1``. The slopes of the rest come from Horner's rule with T, those of the
values taken out from the adjoint recursion, which is positive as well. Slopes are stored by value rather than by class
index, since equal values have equal slopes.

Computations over classes are float32, those per row float64. Factors that need float64 are passed as two float32
halves, because floating-point arguments of a kernel are float32.
"""

import triton
import triton.language as tl

__all__ = ["smooth_backward", "smooth_forward"]

LOG2E = tl.constexpr(1.4426950408889634)
LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def _newton(sums, K: tl.constexpr):
    """σ_0 … σ_K from p_1 … p_K, float64; values that rounding makes negative become 0."""
    polynomials = (sums[0] * 0 + 1,)
    for m in tl.static_range(1, K + 1):
        total = sums[0] * 0
        for i in tl.static_range(1, m + 1):
            if i % 2 == 1:
                total += sums[i - 1] * polynomials[m - i]
            else:
                total -= sums[i - 1] * polynomials[m - i]
        polynomials = polynomials + (tl.maximum(total / m, 0.0),)
    return polynomials


@triton.jit
def _power_sums(values, extra, extra_value, K: tl.constexpr):
    """p_1 … p_K of values ``(BLOCK,)`` and of ``extra`` copies of one further value."""
    sums = ((tl.sum(values, 0) + extra * extra_value).to(tl.float64),)
    power = values
    extra_power = extra_value
    for _ in tl.static_range(2, K + 1):
        power = power * values
        extra_power = extra_power * extra_value
        sums = sums + ((tl.sum(power, 0) + extra * extra_power).to(tl.float64),)
    return sums


@triton.jit
def _store_coefficients(coefficients, polynomials, K: tl.constexpr):
    """``(-1)^i (σ_{K-i} / σ_K - σ_{K-1-i} / σ_{K-1})`` for i = 1 … K."""
    last = 1 / polynomials[K]
    before = 1 / polynomials[K - 1]
    for i in tl.static_range(1, K + 1):
        share = polynomials[K - i] * last
        if i < K:
            share -= polynomials[K - 1 - i] * before
        if i % 2 == 1:
            share = -share
        tl.store(coefficients + (i - 1), share.to(tl.float32))


@triton.jit
def _inclusion(start, factors, steps, held: tl.constexpr):
    """``π^(held)`` of the values taken out ``(M,)``, by the adjoint recursion from start_0 … start_held."""
    state = steps[0] * 0 + start[held]
    chance = steps[held - 1] * state
    for back in tl.static_range(1, held):
        flow = factors[held - back] * state
        state = start[held - back] + (tl.cumsum(flow, 0, reverse=True) - flow)
        chance += steps[held - back - 1] * state
    return chance


@triton.jit
def _take_out(values, exponent, K: tl.constexpr, M: tl.constexpr):
    """The values taken out, their number and reference, the weights of the rest, and further copies of one value.

    Equal values are taken out together. Copies that do not fit into the 3K places are counted and join the rest.
    """
    column = tl.arange(0, M)
    taken = tl.full([M], -float("inf"), tl.float32)
    best = tl.max(values, 0)
    count = 0
    while count < K:
        ties = tl.sum((values == best).to(tl.int32), 0)
        fits = tl.minimum(ties, 3 * K - count)
        taken = tl.where((column >= count) & (column < count + fits), best, taken)
        values = tl.where(values == best, -float("inf"), values)
        count += ties
        best = tl.max(values, 0)
    copies = tl.maximum(count - 3 * K, 0)
    count = tl.minimum(count, 3 * K)
    reference = tl.sum(tl.where(column == K - 1, taken, 0.0), 0)
    copied = tl.full([], 1.0, tl.float32)
    weights = tl.exp2((values - reference) * exponent)
    mass = tl.sum(weights, 0) + (count + copies - K + 1)
    while (count < 3 * K) & (tl.exp2((best - reference) * exponent) * (2 * K) > mass):
        ties = tl.sum((values == best).to(tl.int32), 0)
        fits = tl.minimum(ties, 3 * K - count)
        taken = tl.where((column >= count) & (column < count + fits), best, taken)
        values = tl.where(values == best, -float("inf"), values)
        copies = ties - fits
        copied = tl.exp2((best - reference) * exponent)
        count += fits
        best = tl.max(values, 0)
    weights = tl.where(values > -float("inf"), weights, 0.0)
    return taken, count, reference, weights, copies.to(tl.float32), copied


@triton.jit
def _recursion(values, reference, scale, count, K: tl.constexpr, M: tl.constexpr):
    """``Ê_m`` of the values taken out, the ratios and steps of each, and ``Π_{m < l <= K} e_K / e_l`` for m = K … 0."""
    column = tl.arange(0, M)
    step = tl.where(column < count, 1.0, 0.0).to(tl.float64)  # Ê_0 before each value
    one = tl.sum(tl.where(column == 0, step, 0.0), 0)
    before = step
    totals = (one,)
    factors = ()
    steps = ()
    distances = ()
    for m in tl.static_range(1, K + 1):
        own = tl.sum(tl.where(column == m - 1, values, 0.0), 0)
        # Subtracted before scaling, so that the difference of equal values is 0 with fused multiply-adds, too.
        factor = tl.exp(tl.minimum((values - own) * scale, 0.0))
        factor = tl.where((column >= m - 1) & (column < count), factor, 0.0)
        step = factor * before
        before = tl.cumsum(step, 0) - step
        totals = totals + (tl.sum(step, 0),)
        factors = factors + (factor,)
        steps = steps + (step,)
        distances = distances + ((own - reference) * scale,)
    weight = one
    weighing = (one,)
    for back in tl.static_range(1, K + 1):
        weight = weight * tl.exp(-distances[K - back])
        weighing = weighing + (weight,)
    return totals, factors, steps, weighing


@triton.jit
def _chance(weighing, rest, polynomials, factors, steps, held: tl.constexpr, K: tl.constexpr):
    """``π^(held)`` of the values taken out, from the polynomials of the rest."""
    start = ()
    for m in tl.static_range(0, held + 1):
        start = start + (weighing[K - m] * rest[held - m] / polynomials[held],)
    return _inclusion(start, factors, steps, held)


@triton.jit
def _split(values, scale, coefficients, leading, SLOPE: tl.constexpr, K: tl.constexpr, M: tl.constexpr):
    """``log σ_K - log σ_{K-1}`` in units of e_K, the score of e_K, and the number of values taken out."""
    exponent = (scale * LOG2E).to(tl.float32)
    taken, count, reference, weights, copies, copied = _take_out(values, exponent, K, M)
    rest = _newton(_power_sums(weights, copies, copied, K), K)
    totals, factors, steps, weighing = _recursion(
        taken.to(tl.float64), reference.to(tl.float64), scale, count, K, M
    )
    polynomials = ()
    for q in tl.static_range(0, K + 1):
        total = rest[0] * 0
        for m in tl.static_range(0, q + 1):
            total += totals[m] * weighing[K - m] * rest[q - m]
        polynomials = polynomials + (total,)
    if SLOPE:
        _store_coefficients(coefficients, polynomials, K)
        slope = -_chance(weighing, rest, polynomials, factors, steps, K, K)
        if K > 1:
            slope += _chance(weighing, rest, polynomials, factors, steps, K - 1, K)
        tl.store(leading + tl.arange(0, M), taken)
        tl.store(leading + M + tl.arange(0, M), slope.to(tl.float32))
    return tl.log(polynomials[K] / polynomials[K - 1]), reference, count


@triton.jit(do_not_specialize=["ignored"])
def smooth_forward(
    scores,  # (N, L), any floating-point dtype; rows are `stride` apart
    labels,  # (N,) int64
    margins,  # (N,) float32; unused if not PER_ROW
    losses,  # (N,) float32
    kept,  # (N, 3 + K + 2 M) float32: sigmoid, reference, number of values taken out, coefficients, values, slopes
    stride,
    classes,
    ignored,
    tau,
    scale_high,  # 1 / (K τ)
    scale_low,
    inverse_high,  # 1 / τ
    inverse_low,
    margin_high,
    margin_low,
    PER_ROW: tl.constexpr,
    SLOPE: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write losses, sigmoids of their arguments, and slopes: a polynomial, and pairs of value and slope."""
    row = tl.program_id(0).to(tl.int64)
    kept += row * (3 + K + 2 * M)
    label = tl.load(labels + row)
    counted = label != ignored
    known = (label >= 0) & (label < classes)
    scale = tl.full([], scale_high, tl.float64) + scale_low
    inverse = tl.full([], inverse_high, tl.float64) + inverse_low
    margin = tl.full([], margin_high, tl.float64) + margin_low
    if PER_ROW:
        margin = tl.load(margins + row).to(tl.float64)
    column = tl.arange(0, BLOCK)
    entries = tl.load(scores + row * stride + column, mask=column < classes, other=-float("inf")).to(
        tl.float32
    )
    own = tl.load(scores + row * stride + label, mask=known, other=float("nan")).to(tl.float32)
    finite = entries < float("inf")  # true for -inf, false for NaN
    broken = tl.min(finite.to(tl.int32), 0) == 0
    # Masked classes get the smallest finite score: the same limit, and differences of two are not NaN.
    values = tl.maximum(tl.where(finite, entries, 0.0), -LARGEST)
    values = tl.where((column < classes) & (column != label), values, -float("inf"))
    reference = tl.max(values, 0)
    weights = tl.exp2((values - reference) * (scale * LOG2E).to(tl.float32))
    comparable = True if K == 1 else tl.sum(weights, 0) >= 3 * K
    count = tl.full([], 0, tl.int32)
    if comparable:
        sums = _power_sums(weights, 0.0, 0.0, K)
        polynomials = _newton(sums, K)
        ratio = tl.log(polynomials[K] / polynomials[K - 1])
        if SLOPE:
            _store_coefficients(kept + 3, polynomials, K)
    else:
        ratio, reference, count = _split(values, scale, kept + 3, kept + 3 + K, SLOPE, K, M)
    argument = ratio + (reference.to(tl.float64) - own.to(tl.float64)) * scale + margin * inverse
    argument = tl.where(broken, float("nan"), argument)
    small = tl.exp(-tl.abs(argument))
    log1p = tl.where(small < 1e-5, small * (1 - 0.5 * small), tl.log(1 + small))
    positive = tl.where(argument <= 0, 0.0, argument)  # NaN stays
    probability = tl.where(argument >= 0, 1.0, small) / (1 + small)
    loss = (positive + log1p).to(tl.float32) * tau
    # A masked target costs +inf whatever the other scores are. Masked targets and ignored rows have no gradient.
    masked = own == -float("inf")
    loss = tl.where(masked, float("inf"), loss)
    tl.store(losses + row, tl.where(counted, loss, 0.0))
    if SLOPE:
        probability = tl.where(masked | (counted == 0), 0.0, probability)
        tl.store(kept, probability.to(tl.float32))
        tl.store(kept + 1, reference)
        tl.store(kept + 2, count.to(tl.float32))


@triton.jit(do_not_specialize=["gradient_stride"])
def smooth_backward(
    scores,
    labels,
    gradients,  # (N,) float32, `gradient_stride` apart: 0 for the expanded gradient of a mean or a sum
    kept,  # (N, 3 + K + 2 M), from the forward pass
    out,  # (N, L) contiguous, in the scores' dtype
    by_margins,  # (N,) float32
    stride,
    gradient_stride,
    classes,
    scale,
    K: tl.constexpr,
    M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradient with respect to the scores: a polynomial, except for the label and the values taken out."""
    row = tl.program_id(0).to(tl.int64)
    kept += row * (3 + K + 2 * M)
    leading = kept + 3 + K
    probability = tl.load(kept)
    by_margin = tl.zeros([], tl.float32)
    column = tl.arange(0, BLOCK)
    inside = column < classes
    gradient = tl.zeros([BLOCK], tl.float32)
    if probability != 0:
        label = tl.load(labels + row)
        by_margin = tl.load(gradients + row * gradient_stride) * probability
        factor = by_margin * (-1.0 / K)
        values = tl.load(scores + row * stride + column, mask=inside, other=-float("inf")).to(tl.float32)
        values = tl.maximum(values, -LARGEST)
        weights = tl.exp2(tl.minimum((values - tl.load(kept + 1)) * (scale * LOG2E), 1.0))
        for i in tl.static_range(K):
            gradient = (gradient + tl.load(kept + 3 + (K - 1 - i))) * weights
        for j in range(tl.load(kept + 2).to(tl.int32)):
            gradient = tl.where(values == tl.load(leading + j), tl.load(leading + M + j), gradient)
        gradient = tl.where(column == label, 1.0, gradient) * factor
    tl.store(out + row * classes + column, gradient.to(out.dtype.element_ty), mask=inside)
    tl.store(by_margins + row, by_margin)
