"""The noised top-K hinge: the choice of the rule for a call, and the loss of scores and targets."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.autograd import losses_by
from topk_losses._core.backends import choose
from topk_losses._core.reduction import Reduction, reduce_loss
from topk_losses._core.shapes import per_label
from topk_losses._expected.rule import expected_above
from topk_losses._noised import cpu, cuda
from topk_losses._noised.drawn import DrawnHinge
from topk_losses._noised.generators import Generators, check_generators, seeds_of
from topk_losses._noised.plain import noised_losses
from topk_losses._rows.invalid import with_nan_where_invalid

__all__ = ["exact_hinge", "noised_hinge"]


def noised_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    margin: float | Tensor,
    noise: Tensor | None,
    generator: Generators,
    how: Reduction,
) -> Tensor:
    """:func:`~topk_losses.functional.noised_topk_hinge` by draws, for arguments that have been checked."""
    rule = None
    if noise is None:
        rule = _rule(scores, target, k, epsilon, samples, margin, how.ignore_index)
    if rule is None:
        plain = noised_losses(k, epsilon, samples, margin, noise, generator)
        return reduce_loss(plain, scores, target, how)
    check_generators(generator, target.numel())
    seeds = seeds_of(generator, scores.device)
    drawn = rule

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        margins = per_label(margin, labels.squeeze(1), rows)
        return losses_by(drawn, rows, labels, margins, seeds).unsqueeze(1)

    return reduce_loss(losses, scores, target, how, complete=True)


def exact_hinge(
    scores: Tensor, target: Tensor, k: int, epsilon: float, margin: float | Tensor, how: Reduction
) -> Tensor:
    """:func:`~topk_losses.functional.noised_topk_hinge` by its expectation, for arguments that have been checked."""

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        above = expected_above(rows, labels, k + 1, epsilon) + per_label(margin, labels, rows)
        return with_nan_where_invalid(above, rows.detach().amax(1, keepdim=True)).relu()

    return reduce_loss(losses, scores, target, how)


def _rule(
    scores: Tensor,
    target: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    margin: float | Tensor,
    ignore_index: int,
) -> DrawnHinge | None:
    """The rule with kernels for this call, or None if torch computes it, which draws its own noise."""

    def by_numba(_: bool) -> str | None:
        if target.is_floating_point() or target.device != scores.device:
            return "the targets are soft, or on another device"
        return cpu.refusal(scores, k + 1, epsilon)

    backend = choose(
        "noised_topk_hinge",
        triton=lambda asked: cuda.refusal(scores, target, k, samples, margin, asked),
        numba=by_numba,
    )
    if backend == "triton":
        return cuda.TritonNoisedHinge(k, epsilon, samples, ignore_index)
    return cpu.NumbaNoisedHinge(k, epsilon, samples, ignore_index) if backend == "numba" else None
