r"""Triton kernels of the noised top-K hinge: one program per row, the noise made where it is used.

Noise: the Philox generator of ten rounds with the seed as key and (class, row, four draws) as counter gives four 32-bit
words, and Box-Muller's formula makes four Gaussians of them, one for each of the four draws. A class's noise thus
depends on the seed and its place alone, not on which other classes are looked at. With
``u = (word + 1/2) / 2^32`` no Gaussian is beyond ``R = sqrt(-2 log(2^-33)) < 6.7638``; that has the probability
1.4e-11 for one of a normal distribution, so that for up to 2^15 classes a draw's noise is within 4.5e-7 of it in
total variation.

Candidates: let t be a lower bound of the (K+1)-th largest score. In every draw K + 1 noisy scores are at least
``t - ε R``, so that a class below ``t - 2 ε R`` is in no draw the (K+1)-th largest, *whatever the noise*: leaving it out
changes no result at all. t is the (K+1)-th largest of the maxima of groups of classes. If few classes are left they
are put together in memory first; each is then drawn for, a block at a time, all draws at once.

Each draw's K + 1 largest so far are kept in registers. The largest of a block goes in for the least of them, as long
as it is larger in any draw; after the first block this is rare.
"""

import triton
import triton.language as tl

__all__ = ["noised_backward", "noised_forward", "normals"]

REACH = tl.constexpr(6.7638)


@triton.jit
def normals(seed, row, classes, quads):
    """Four Gaussians for each class ``(C, 1)`` and each four draws ``(1, Q)``, as ``(C, 4 Q)``."""
    first = classes + quads * 0
    one, two, three, four = tl.philox(
        seed, first.to(tl.uint32), (row + first * 0).to(tl.uint32), (quads + first * 0).to(tl.uint32), (first * 0).to(tl.uint32)
    )
    unit: tl.constexpr = 2.3283064365386963e-10
    turn: tl.constexpr = 1.4629180792671596e-09
    far = tl.sqrt(-2 * tl.log((one.to(tl.float32) + 0.5) * unit))
    angle = two.to(tl.float32) * turn
    far_too = tl.sqrt(-2 * tl.log((three.to(tl.float32) + 0.5) * unit))
    angle_too = four.to(tl.float32) * turn
    pairs = tl.join(tl.join(far * tl.cos(angle), far_too * tl.cos(angle_too)), tl.join(far * tl.sin(angle), far_too * tl.sin(angle_too)))
    return tl.reshape(pairs, [first.shape[0], 4 * first.shape[1]])


@triton.jit
def _insert(best, best_class, noisy, classes, K: tl.constexpr, SLOTS: tl.constexpr, CHUNK: tl.constexpr, DRAWS: tl.constexpr):
    """The K + 1 largest ``(SLOTS, DRAWS)`` of those and of the noisy scores ``(CHUNK, DRAWS)``."""
    slot = tl.expand_dims(tl.arange(0, SLOTS), 1)
    place = tl.expand_dims(tl.arange(0, CHUNK), 1)
    least = tl.min(best, 0)
    most = tl.max(noisy, 0)
    while tl.max((most > least).to(tl.int32), 0) > 0:
        larger = tl.expand_dims(most > least, 0)
        where = tl.min(tl.where(noisy == tl.expand_dims(most, 0), place, CHUNK), 0)
        chosen = place == tl.expand_dims(where, 0)
        its_class = tl.sum(tl.where(chosen, classes, 0), 0)
        out = tl.min(tl.where(best == tl.expand_dims(least, 0), slot, SLOTS), 0)
        replaced = (slot == tl.expand_dims(out, 0)) & larger
        best = tl.where(replaced, tl.expand_dims(most, 0), best)
        best_class = tl.where(replaced, tl.expand_dims(its_class, 0), best_class)
        noisy = tl.where(chosen, -float("inf"), noisy)
        least = tl.min(best, 0)
        most = tl.max(noisy, 0)
    return best, best_class


@triton.jit
def noised_forward(
    scores,  # (N, L), any float; its rows are `stride` apart
    labels,  # (N,) int64
    margins,  # (N,) float32, or anything if not PER_ROW
    seeds,  # (1,) int64
    losses,  # (N,) float32
    active,  # (N,) float32: the hinge's own derivative
    places,  # (N, B) int32: the class that was the (K+1)-th largest, -1 for none
    kept,  # (N, ROOM) float32
    kept_classes,  # (N, ROOM) int32
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
    ROOM: tl.constexpr,
    GROUPS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Losses, and for each draw the class that the gradient goes to."""
    row = tl.program_id(0)
    scores += row.to(tl.int64) * stride
    label = tl.load(labels + row)
    known = (label >= 0) & (label < classes)
    seed = tl.load(seeds)
    if PER_ROW:
        margin = tl.load(margins + row)
    place = tl.arange(0, BLOCK)
    entries = tl.load(scores + place, mask=place < classes, other=-float("inf")).to(tl.float32)
    own = tl.load(scores + label, mask=known, other=float("nan")).to(tl.float32)
    # NaN and +inf are not below +inf.
    broken = tl.max((entries < float("inf")).to(tl.int32) == 0, 0) > 0
    centre = tl.max(tl.where(entries < float("inf"), entries, -float("inf")), 0)
    centre = tl.where(centre > -float("inf"), centre, 0.0)
    entries = entries - centre
    maxima = tl.max(tl.reshape(entries, [GROUPS, BLOCK // GROUPS]), 1)
    bound = tl.max(maxima, 0)
    found = tl.sum((maxima == bound).to(tl.int32), 0)
    while found < K + 1:
        maxima = tl.where(maxima >= bound, -float("inf"), maxima)
        bound = tl.max(maxima, 0)
        found = tl.where(bound > -float("inf"), found + tl.sum((maxima == bound).to(tl.int32), 0), K + 1)
    lowest = bound - 2 * epsilon * 6.7638
    wanted = (entries >= lowest) & (entries > -float("inf"))
    number = tl.sum(wanted.to(tl.int32), 0)
    compact = number <= ROOM
    if compact:
        position = row.to(tl.int64) * ROOM + tl.cumsum(wanted.to(tl.int32), 0) - 1
        tl.store(kept + position, entries, mask=wanted)
        tl.store(kept_classes + position, place, mask=wanted)
        tl.debug_barrier()  # what one thread has stored others load
    else:
        number = classes

    slot = tl.expand_dims(tl.arange(0, SLOTS), 1)
    lane = tl.arange(0, DRAWS)
    total = tl.zeros([DRAWS], tl.float32)
    for start in range(0, draws, DRAWS):
        quads = tl.expand_dims(tl.arange(0, DRAWS // 4), 0) + start // 4
        best = tl.where(slot <= K, -float("inf"), float("inf")) + tl.zeros([SLOTS, DRAWS], tl.float32)
        best_class = tl.full([SLOTS, DRAWS], -1, tl.int32)
        for first in range(0, number, CHUNK):
            position = first + tl.arange(0, CHUNK)
            inside = position < number
            if compact:
                values = tl.load(kept + row.to(tl.int64) * ROOM + position, mask=inside, other=-float("inf"))
                index = tl.load(kept_classes + row.to(tl.int64) * ROOM + position, mask=inside, other=0)
            else:
                values = tl.load(scores + position, mask=inside, other=-float("inf")).to(tl.float32) - centre
                index = position
            index = tl.expand_dims(index, 1)
            noisy = tl.expand_dims(values, 1) + epsilon * normals(seed, row, index, quads)
            best, best_class = _insert(best, best_class, noisy, index, K, SLOTS, CHUNK, DRAWS)
        least = tl.min(best, 0)
        inside = lane + start < draws
        total += tl.where(inside, least, 0.0)
        who = tl.max(tl.where(best == tl.expand_dims(least, 0), best_class, -1), 0)
        tl.store(places + row.to(tl.int64) * draws + start + lane, who, mask=inside)

    argument = margin + tl.sum(total, 0) / draws - (own - centre)
    argument = tl.where(broken, float("nan"), argument)
    masked = own == -float("inf")
    counted = label != ignored
    loss = tl.where(masked, float("inf"), tl.where(argument <= 0, 0.0, argument))
    tl.store(losses + row, tl.where(counted, loss, 0.0))
    tl.store(active + row, tl.where(counted & (masked == 0) & ((argument <= 0) == 0), 1.0, 0.0))


@triton.jit
def noised_backward(
    labels,
    gradients,  # (N,) float32, `gradient_stride` apart: 0 for that of a mean or a sum
    active,
    places,
    out,  # (N, L) contiguous, of the scores' precision
    gradient_stride,
    classes,
    draws,
    DRAWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient with respect to the scores: the draws' shares, less 1 at the label, where the hinge is active."""
    row = tl.program_id(0).to(tl.int64)
    out += row * classes
    slope = tl.load(active + row)
    for first in range(0, classes, BLOCK):
        place = first + tl.arange(0, BLOCK)
        tl.store(out + place, tl.zeros([BLOCK], out.dtype.element_ty), mask=place < classes)
    if slope != 0:
        slope = slope * tl.load(gradients + row * gradient_stride)
        label = tl.load(labels + row).to(tl.int32)
        lane = tl.arange(0, DRAWS)
        ours = tl.load(places + row * draws + lane, mask=lane < draws, other=-1)
        same = (tl.expand_dims(ours, 0) == tl.expand_dims(ours, 1)).to(tl.int32)
        share = tl.sum(same, 0).to(tl.float32) / draws - (ours == label).to(tl.float32)
        own = tl.sum((ours == label).to(tl.int32), 0).to(tl.float32) / draws - 1
        tl.debug_barrier()  # the zeros come first
        tl.store(out + ours, (share * slope).to(out.dtype.element_ty), mask=ours >= 0)
        tl.store(out + label, (own * slope).to(out.dtype.element_ty))
