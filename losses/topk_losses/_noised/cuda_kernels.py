r"""Triton kernels of the noised top-K hinge, which generate the noise where it is used.

The forward pass has three steps: one program per row finds the classes that can count, one warp per row and group of
four draws draws for them, and one program per row adds up. A single warp exchanges values without barriers. When a
row's 32 warps drew together, 10,000 scores that are close together took 16 times as long on an H200.

Noise: the Philox generator with ten rounds, the seed as key and (class, row, group of four draws) as counter, gives
four 32-bit words. The Box-Muller transform turns them into four Gaussians, one for each of the four draws. So the noise
of a class depends only on the seed and its position, not on which other classes are drawn for. With
``u = (word + 1/2) / 2^32`` no Gaussian exceeds ``R = sqrt(-2 log(2^-33)) < 6.7638``. An exact normal variable exceeds R
with probability 1.4e-11, so for up to 2^15 classes the noise of a draw is within 4.5e-7 of the normal distribution in
total variation.

Candidates: let t be a lower bound of the (K+1)-th largest score. In every draw K + 1 noisy scores are at least
``t - ε R``, so a class below ``t - 2 ε R`` is never the (K+1)-th largest, *whatever the noise*, and leaving it out does
not change any result. t is the (K+1)-th largest of the maxima of groups of classes. If few classes are left, their
indices are listed in memory. Noise is drawn for one chunk of classes at a time.

The K + 1 largest noisy scores of each draw so far are kept in registers. The largest of a chunk replaces the smallest
of them as long as it is larger in any draw; after the first chunk this is rare.
"""

import triton
import triton.language as tl

__all__ = ["noise", "noised_backward", "noised_candidates", "noised_draws", "noised_losses"]

FAR = tl.constexpr(1000.0)  # float32 differences of up to so many ε are right to 6e-5 ε


@triton.jit
def _normals(seed, row, classes, quads):
    """Gaussians ``(C, 4 Q)``: four for each class ``(C, 1)`` and each group of four draws ``(1, Q)``."""
    first = (classes + quads * 0).to(tl.uint32)
    zero = first * 0
    one, two, three, four = tl.philox(seed, first, zero + row.to(tl.uint32), zero + quads.to(tl.uint32), zero)
    radius, other_radius = _radius(one), _radius(three)
    cosine, sine = _turned(two)
    other_cosine, other_sine = _turned(four)
    cosines = tl.join(radius * cosine, other_radius * other_cosine)
    sines = tl.join(radius * sine, other_radius * other_sine)
    return tl.reshape(tl.join(cosines, sines), [first.shape[0], 4 * first.shape[1]])


@triton.jit
def _radius(word):
    """The distance of two Gaussians from the origin, from a 32-bit word."""
    unit: tl.constexpr = 2.3283064365386963e-10  # 2^-32
    squared = -2 * tl.log((word.to(tl.float32) + 0.5) * unit)
    # A fast logarithm may have the wrong sign just below 1.
    return tl.sqrt(tl.maximum(squared, 0.0))


@triton.jit
def _turned(word):
    """Cosine and sine of the angle 2 π word / 2^32, to 1e-7.

    The two highest bits choose a quarter of the circle exactly, and Cephes' polynomials do the rest. The library's
    functions also reduce large angles, which costs twice as much and does not occur here.
    """
    turn: tl.constexpr = 1.4629180792671596e-09  # 2 π 2^-32
    quarter = ((word >> 29) + 1) >> 1  # the nearest multiple of π/2
    angle = (word - (quarter << 30)).to(tl.int32, bitcast=True).to(tl.float32) * turn
    square = angle * angle
    sine = ((-1.9515295891e-4 * square + 8.3321608736e-3) * square - 1.6666654611e-1) * square * angle + angle
    cosine = ((2.443315711809948e-5 * square - 1.388731625493765e-3) * square + 4.166664568298827e-2) * square
    cosine = (cosine - 0.5) * square + 1
    odd = (quarter & 1) == 1
    first, second = tl.where(odd, sine, cosine), tl.where(odd, cosine, sine)
    return tl.where(((quarter + 1) & 2) == 2, -first, first), tl.where((quarter & 2) == 2, -second, second)


@triton.jit
def noise(seeds, out, classes, DRAWS: tl.constexpr, BLOCK: tl.constexpr):
    """Write all the noise ``(N, L, DRAWS)`` of a seed, which the loss never stores; for tests."""
    row = tl.program_id(0).to(tl.int64)
    index = tl.expand_dims(tl.arange(0, BLOCK), 1)
    quads = tl.expand_dims(tl.arange(0, DRAWS // 4), 0)
    lane = tl.expand_dims(tl.arange(0, DRAWS), 0)
    values = _normals(tl.load(seeds), row, index, quads)
    tl.store(out + (row * classes + index) * DRAWS + lane, values, mask=index < classes)


@triton.jit
def _largest_but(entries, K: tl.constexpr):
    """The (K+1)-th largest entry, without a copy of the entries, for which registers would be short."""
    bound = tl.max(entries, 0)
    reaching = tl.sum((entries == bound).to(tl.int32), 0)
    while (reaching <= K) & (bound > -float("inf")):
        bound = tl.max(tl.where(entries < bound, entries, -float("inf")), 0)
        reaching += tl.sum((entries == bound).to(tl.int32), 0)
    return bound


@triton.jit
def _lower_bound(entries, K: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """The (K+1)-th largest of the maxima of groups of entries, a lower bound of the (K+1)-th largest entry."""
    return _largest_but(tl.max(tl.reshape(entries, [BLOCK // GROUPS, GROUPS]), 0), K)


@triton.jit
def _insert(best, best_class, noisy, classes, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    """Update the K + 1 largest ``(SLOTS, 4)`` and their classes with the noisy scores ``(BLOCK, 4)``."""
    slot = tl.expand_dims(tl.arange(0, SLOTS), 1)
    entry = tl.expand_dims(tl.arange(0, BLOCK), 1)
    least = tl.min(best, 0)
    most = tl.max(noisy, 0)
    while tl.max((most > least).to(tl.int32), 0) > 0:
        where = tl.min(tl.where(noisy == tl.expand_dims(most, 0), entry, BLOCK), 0)
        chosen = entry == tl.expand_dims(where, 0)
        its_class = tl.sum(tl.where(chosen, classes, 0), 0)
        out = tl.min(tl.where(best == tl.expand_dims(least, 0), slot, SLOTS), 0)
        replaced = (slot == tl.expand_dims(out, 0)) & tl.expand_dims(most > least, 0)
        best = tl.where(replaced, tl.expand_dims(most, 0), best)
        best_class = tl.where(replaced, tl.expand_dims(its_class, 0), best_class)
        noisy = tl.where(chosen, -float("inf"), noisy)
        least = tl.min(best, 0)
        most = tl.max(noisy, 0)
    return best, best_class


@triton.jit
def noised_candidates(
    scores,  # (N, L), any floating-point dtype; rows are `stride` apart
    kept,  # (N, CAPACITY) int32: the classes that can count, if they are at most CAPACITY
    numbers,  # (N,) int32: how many classes to draw for; -1 minus this if the row has NaN or +inf
    centres,  # (N,) float32: what the noisy scores are relative to
    stride,
    classes,
    epsilon,
    K: tl.constexpr,
    CAPACITY: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write which classes of a row can be among the K + 1 largest of a draw."""
    row = tl.program_id(0).to(tl.int64)
    entry = tl.arange(0, BLOCK)
    entries = tl.load(scores + row * stride + entry, mask=entry < classes, other=-float("inf")).to(tl.float32)
    finite = entries < float("inf")  # true for -inf, false for NaN
    broken = tl.min(finite.to(tl.int32), 0) == 0
    entries = tl.where(finite, entries, -float("inf"))
    # Relative to the largest score, so that the noise is not rounded away beside large scores. If it is far above the
    # (K+1)-th largest, relative to that: else the noise would be rounded away beside the difference of the two.
    centre = tl.max(entries, 0)
    centre = tl.where(centre > -float("inf"), centre, 0.0)
    bound = _lower_bound(entries, K, GROUPS, BLOCK)
    if centre - bound > FAR * epsilon:
        bound = _largest_but(entries, K)
        centre = tl.where(bound > -float("inf"), bound, centre)
    entries = entries - centre
    lowest = bound - centre - 2 * 6.7638 * epsilon
    wanted = (entries >= lowest) & (entries > -float("inf"))
    number = tl.sum(wanted.to(tl.int32), 0)
    if number <= CAPACITY:
        tl.store(kept + row * CAPACITY + tl.cumsum(wanted.to(tl.int32), 0) - 1, entry, mask=wanted)
    else:
        number = classes
    tl.store(numbers + row, tl.where(broken, -1 - number, number))
    tl.store(centres + row, centre)


@triton.jit(do_not_specialize=["share"])
def noised_draws(
    scores,
    kept,
    numbers,
    centres,
    seeds,  # (M,) int64, each for `share` rows
    largest,  # (N, B) float32: the (K+1)-th largest noisy score of each draw, minus the centre
    places,  # (N, B) int32: its class, -1 for none
    stride,
    share,
    epsilon,
    draws,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    CAPACITY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the (K+1)-th largest noisy score of four draws of a row; the classes are taken in chunks of BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    quad = tl.program_id(1)
    number = tl.load(numbers + row)
    number = tl.where(number < 0, -1 - number, number)
    few = number <= CAPACITY
    centre = tl.load(centres + row)
    seed = tl.load(seeds + row // share)
    quads = tl.full([1, 1], 0, tl.int32) + quad
    slot = tl.expand_dims(tl.arange(0, SLOTS), 1)
    # Slots beyond K + 1 hold +inf, so that they are never replaced.
    best = tl.where(slot <= K, -float("inf"), float("inf")) + tl.zeros([SLOTS, 4], tl.float32)
    best_class = tl.full([SLOTS, 4], -1, tl.int32)
    for first in range(0, number, BLOCK):
        index = first + tl.arange(0, BLOCK)
        inside = index < number
        if few:
            index = tl.load(kept + row * CAPACITY + index, mask=inside, other=0)
        values = tl.load(scores + row * stride + index, mask=inside, other=-float("inf")).to(tl.float32)
        index = tl.expand_dims(index, 1)
        noise = epsilon * _normals(seed, row % share, index, quads)
        best, best_class = _insert(
            best, best_class, tl.expand_dims(values - centre, 1) + noise, index, SLOTS, BLOCK
        )
    least = tl.min(best, 0)
    its_class = tl.max(tl.where(best == tl.expand_dims(least, 0), best_class, -1), 0)
    lane = 4 * quad + tl.arange(0, 4)
    tl.store(largest + row * draws + lane, least, mask=lane < draws)
    tl.store(places + row * draws + lane, its_class, mask=lane < draws)


@triton.jit(do_not_specialize=["ignored"])
def noised_losses(
    scores,
    labels,  # (N,) int64
    margins,  # (N,) float32; unused if not PER_ROW
    numbers,
    centres,
    largest,
    losses,  # (N,) float32
    active,  # (N,) float32: the derivative of the hinge function, 0 or 1; NaN where the loss is NaN
    stride,
    classes,
    ignored,
    margin,
    draws,
    PER_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the loss of a row from its draws."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    known = (label >= 0) & (label < classes)
    own = tl.load(scores + row * stride + label, mask=known, other=float("nan")).to(tl.float32)
    if PER_ROW:
        margin = tl.load(margins + row)
    lane = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(largest + row * draws + lane, mask=lane < draws, other=0.0), 0)
    argument = margin + total / draws - (own - tl.load(centres + row))
    argument = tl.where(tl.load(numbers + row) < 0, float("nan"), argument)
    masked = own == -float("inf")
    counted = label != ignored
    # A masked target costs +inf whatever the other scores are. Masked and ignored rows have no gradient. NaN stays NaN.
    loss = tl.where(masked, float("inf"), tl.where(argument <= 0, 0.0, argument))
    tl.store(losses + row, tl.where(counted, loss, 0.0))
    derivative = tl.where(argument > 0, 1.0, tl.where(argument <= 0, 0.0, argument))
    tl.store(active + row, tl.where(counted & (masked == 0), derivative, 0.0))


@triton.jit(do_not_specialize=["gradient_stride"])
def noised_backward(
    labels,
    gradients,  # (N,) float32, `gradient_stride` apart: 0 for the expanded gradient of a mean or a sum
    active,
    places,
    out,  # (N, L) contiguous, in the scores' dtype
    gradient_stride,
    classes,
    draws,
    DRAWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradient with respect to the scores: the classes' shares of the draws, minus 1 for the label."""
    row = tl.program_id(0).to(tl.int64)
    out += row * classes
    slope = tl.load(active + row)
    for first in range(0, classes, BLOCK):
        entry = first + tl.arange(0, BLOCK)
        tl.store(out + entry, tl.zeros([BLOCK], out.dtype.element_ty), mask=entry < classes)
    if slope != 0:
        slope = slope * tl.load(gradients + row * gradient_stride)
        label = tl.load(labels + row)
        known = (label >= 0) & (label < classes)  # others have no entry in the row; their loss is NaN
        label = label.to(tl.int32)
        lane = tl.arange(0, DRAWS)
        ours = tl.load(places + row * draws + lane, mask=lane < draws, other=-1)
        same = (tl.expand_dims(ours, 0) == tl.expand_dims(ours, 1)).to(tl.int32)
        share = tl.sum(same, 0).to(tl.float32) / draws - (ours == label).to(tl.float32)
        own = tl.sum((ours == label).to(tl.int32), 0).to(tl.float32) / draws - 1
        tl.debug_barrier()  # the zeros must be written first
        tl.store(out + ours, (share * slope).to(out.dtype.element_ty), mask=ours >= 0)
        tl.store(out + label, (own * slope).to(out.dtype.element_ty), mask=known)
