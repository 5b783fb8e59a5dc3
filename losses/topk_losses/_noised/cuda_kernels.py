r"""Triton kernels of the noised top-K hinge: one program per row, which generates the noise where it is used.

Noise: the Philox generator with ten rounds, the seed as key and (class, row, group of four draws) as counter, gives
four 32-bit words. The Box-Muller transform turns them into four Gaussians, one for each of the four draws. So the noise
of a class depends only on the seed and its position, not on which other classes are drawn for. With
``u = (word + 1/2) / 2^32`` no Gaussian exceeds ``R = sqrt(-2 log(2^-33)) < 6.7638``. An exact normal variable exceeds R
with probability 1.4e-11, so for up to 2^15 classes the noise of a draw is within 4.5e-7 of the normal distribution in
total variation.

Candidates: let t be a lower bound of the (K+1)-th largest score. In every draw K + 1 noisy scores are at least
``t - ε R``, so a class below ``t - 2 ε R`` is never the (K+1)-th largest, *whatever the noise*, and leaving it out does
not change any result. t is the (K+1)-th largest of the maxima of groups of classes. If few classes are left, their
indices are first listed in memory. Then noise is drawn for one chunk of classes at a time, for several draws at once.

The K + 1 largest noisy scores of each draw so far are kept in registers. The largest of a chunk replaces the smallest
of them as long as it is larger in any draw; after the first chunk this is rare.
"""

import triton
import triton.language as tl

__all__ = ["noise", "noised_backward", "noised_forward"]


@triton.jit
def _normals(seed, row, classes, quads):
    """Gaussians ``(C, 4 Q)``: four for each class ``(C, 1)`` and each group of four draws ``(1, Q)``."""
    first = (classes + quads * 0).to(tl.uint32)
    nothing = first * 0
    one, two, three, four = tl.philox(
        seed, first, nothing + row.to(tl.uint32), nothing + quads.to(tl.uint32), nothing
    )
    far, angle = _polar(one, two)
    far_too, angle_too = _polar(three, four)
    cosines = tl.join(far * tl.cos(angle), far_too * tl.cos(angle_too))
    sines = tl.join(far * tl.sin(angle), far_too * tl.sin(angle_too))
    return tl.reshape(tl.join(cosines, sines), [first.shape[0], 4 * first.shape[1]])


@triton.jit
def _polar(one, two):
    """Radius and angle of two Gaussians from two 32-bit words."""
    unit: tl.constexpr = 2.3283064365386963e-10  # 2^-32
    turn: tl.constexpr = 1.4629180792671596e-09  # 2 π 2^-32
    squared = -2 * tl.log((one.to(tl.float32) + 0.5) * unit)
    # A fast logarithm may have the wrong sign just below 1.
    return tl.sqrt(tl.maximum(squared, 0.0)), two.to(tl.float32) * turn


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
def _lower_bound(entries, K: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """The (K+1)-th largest of the maxima of groups of entries, a lower bound of the (K+1)-th largest entry."""
    maxima = tl.max(tl.reshape(entries, [BLOCK // GROUPS, GROUPS]), 0)
    bound = tl.max(maxima, 0)
    reaching = tl.sum((maxima == bound).to(tl.int32), 0)
    while (reaching <= K) & (bound > -float("inf")):
        maxima = tl.where(maxima >= bound, -float("inf"), maxima)
        bound = tl.max(maxima, 0)
        reaching += tl.sum((maxima == bound).to(tl.int32), 0)
    return bound


@triton.jit
def _insert(best, best_class, noisy, classes, SLOTS: tl.constexpr, CHUNK: tl.constexpr):
    """Update the K + 1 largest ``(SLOTS, DRAWS)`` and their classes with the noisy scores ``(CHUNK, DRAWS)``."""
    slot = tl.expand_dims(tl.arange(0, SLOTS), 1)
    entry = tl.expand_dims(tl.arange(0, CHUNK), 1)
    least = tl.min(best, 0)
    most = tl.max(noisy, 0)
    while tl.max((most > least).to(tl.int32), 0) > 0:
        where = tl.min(tl.where(noisy == tl.expand_dims(most, 0), entry, CHUNK), 0)
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
def _draw(
    scores,
    centre,
    kept,
    few,
    number,
    seed,
    row,
    quads,
    epsilon,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    DRAWS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The (K+1)-th largest noisy score of each draw ``(DRAWS,)``, minus the centre, and its class.

    The classes are the first ``number``, or with ``few`` those listed in ``kept``.
    """
    slot = tl.expand_dims(tl.arange(0, SLOTS), 1)
    # Slots beyond K + 1 hold +inf, so that they are never replaced.
    best = tl.where(slot <= K, -float("inf"), float("inf")) + tl.zeros([SLOTS, DRAWS], tl.float32)
    best_class = tl.full([SLOTS, DRAWS], -1, tl.int32)
    for first in range(0, number, CHUNK):
        index = first + tl.arange(0, CHUNK)
        inside = index < number
        if few:
            index = tl.load(kept + index, mask=inside, other=0)
        values = tl.load(scores + index, mask=inside, other=-float("inf")).to(tl.float32) - centre
        index = tl.expand_dims(index, 1)
        noisy = tl.expand_dims(values, 1) + epsilon * _normals(seed, row, index, quads)
        best, best_class = _insert(best, best_class, noisy, index, SLOTS, CHUNK)
    least = tl.min(best, 0)
    return least, tl.max(tl.where(best == tl.expand_dims(least, 0), best_class, -1), 0)


@triton.jit
def noised_forward(
    scores,  # (N, L), any floating-point dtype; rows are `stride` apart
    labels,  # (N,) int64
    margins,  # (N,) float32; unused if not PER_ROW
    seeds,  # (1,) int64
    losses,  # (N,) float32
    active,  # (N,) float32: the derivative of the hinge function, 0 or 1
    places,  # (N, B) int32: the class that was the (K+1)-th largest, -1 for none
    kept,  # (N, CAPACITY) int32: scratch
    stride,
    classes,
    ignored,
    epsilon,
    margin,
    draws,
    PER_ROW: tl.constexpr,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    DRAWS: tl.constexpr,
    CAPACITY: tl.constexpr,
    GROUPS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the losses, and for each draw the class that gets the gradient."""
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride
    places += row * draws
    kept += row * CAPACITY
    label = tl.load(labels + row)
    seed = tl.load(seeds)
    if PER_ROW:
        margin = tl.load(margins + row)
    entry = tl.arange(0, BLOCK)
    entries = tl.load(scores + entry, mask=entry < classes, other=-float("inf")).to(tl.float32)
    own = tl.load(scores + label, mask=(label >= 0) & (label < classes), other=float("nan")).to(tl.float32)
    finite = entries < float("inf")  # true for -inf, false for NaN
    broken = tl.min(finite.to(tl.int32), 0) == 0
    entries = tl.where(finite, entries, -float("inf"))
    # Relative to the largest score, so that the noise is not rounded away beside large scores.
    centre = tl.max(entries, 0)
    centre = tl.where(centre > -float("inf"), centre, 0.0)
    entries = entries - centre
    lowest = _lower_bound(entries, K, GROUPS, BLOCK) - 2 * 6.7638 * epsilon
    wanted = (entries >= lowest) & (entries > -float("inf"))
    number = tl.sum(wanted.to(tl.int32), 0)
    few = number <= CAPACITY
    if few:
        tl.store(kept + tl.cumsum(wanted.to(tl.int32), 0) - 1, entry, mask=wanted)
        tl.debug_barrier()  # threads load what others have stored
    else:
        number = classes
    lane = tl.arange(0, DRAWS)
    total = tl.zeros([DRAWS], tl.float32)
    for start in range(0, draws, DRAWS):
        quads = tl.expand_dims(tl.arange(0, DRAWS // 4), 0) + start // 4
        largest, its_class = _draw(
            scores, centre, kept, few, number, seed, row, quads, epsilon, K, SLOTS, DRAWS, CHUNK
        )
        inside = lane + start < draws
        total += tl.where(inside, largest, 0.0)
        tl.store(places + start + lane, its_class, mask=inside)
    argument = margin + tl.sum(total, 0) / draws - (own - centre)
    argument = tl.where(broken, float("nan"), argument)
    masked = own == -float("inf")
    counted = label != ignored
    # A masked target costs +inf whatever the other scores are. Masked and ignored rows have no gradient. NaN stays NaN.
    loss = tl.where(masked, float("inf"), tl.where(argument <= 0, 0.0, argument))
    tl.store(losses + row, tl.where(counted, loss, 0.0))
    tl.store(active + row, tl.where(counted & (masked == 0) & ((argument <= 0) == 0), 1.0, 0.0))


@triton.jit
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
        label = tl.load(labels + row).to(tl.int32)
        lane = tl.arange(0, DRAWS)
        ours = tl.load(places + row * draws + lane, mask=lane < draws, other=-1)
        same = (tl.expand_dims(ours, 0) == tl.expand_dims(ours, 1)).to(tl.int32)
        share = tl.sum(same, 0).to(tl.float32) / draws - (ours == label).to(tl.float32)
        own = tl.sum((ours == label).to(tl.int32), 0).to(tl.float32) / draws - 1
        tl.debug_barrier()  # the zeros must be written first
        tl.store(out + ours, (share * slope).to(out.dtype.element_ty), mask=ours >= 0)
        tl.store(out + label, (own * slope).to(out.dtype.element_ty))
