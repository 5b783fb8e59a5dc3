"""The noised top-K hinges of Garcin et al. 2022."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from topk_losses._core.backends import choose
from topk_losses._core.checks import (
    check_margins,
    check_noise,
    check_not_negative,
    check_positive,
    check_samples,
    check_scores,
    check_topk,
)
from topk_losses._core.reduction import Reduction, Shared, reduce_complete, reduce_loss, takes_single_rows
from topk_losses._core.shapes import per_label, with_nan_where_invalid
from topk_losses._expected.rule import expected_above
from topk_losses._noised import cpu, cuda
from topk_losses._noised.draws import check_generators, seeds_of
from topk_losses._noised.plain import noised_losses

__all__ = ["noised_imbalanced_topk_hinge", "noised_topk_hinge"]


@takes_single_rows
def noised_topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    epsilon: float = 0.2,
    samples: int | None = 10,
    margin: float | Tensor = 1.0,
    noise: Tensor | None = None,
    generator: torch.Generator | Sequence[torch.Generator] | None = None,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Noised (balanced) top-K hinge: the calibrated hinge with :func:`noised_topk` for the (K+1)-th largest score.

    .. math:: \Bigl(\alpha + \frac{1}{B} \sum_b (s + \varepsilon Z_b)_{[K+1]} - s_y\Bigr)_+

    with ``Z_b`` standard normal.

    On CUDA devices, where Triton is installed and works, its kernels generate the noise where it is used, from a seed
    that the generator provides. This holds for float32 and half-precision scores, K up to 31, B up to 128, up to 2^15
    classes, outside ``torch.compile``. The noise of a draw is then within 4.5e-7 of the normal distribution in total
    variation. On the CPU a Numba kernel draws the noise, where Numba is installed, as for :func:`noised_topk`.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        epsilon: ε, the standard deviation of the noise in the units of the scores, at least 0; at 0 this is the
            calibrated hinge.
        samples: B, the number of draws, or None for the exact expectation, which draws nothing.
        margin: α, a number or one per class ``(L,)``.
        noise: standard normal draws Z to use instead of new ones, ``(B, N, L)`` or ``(B, N, L, ...)``.
        generator: random generator of the draws, on the scores' device. For an ensemble, a sequence of generators: the
            samples are divided evenly among them, and each draws the noise that it would draw for its share alone.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, k outside ``[1, L - 1]``, ε below 0,
            B below 1, and ``noise`` together with ``samples=None``.

    References:
        Garcin et al.: Stochastic smoothing of the top-K calibrated hinge loss for deep imbalanced
        classification, ICML 2022, (10).

    Example:
        >>> import torch
        >>> scores, target = torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1])
        >>> noised_topk_hinge(scores, target, k=2, epsilon=0.0)
        tensor(1.)
        >>> noised_topk_hinge(scores, target, k=2, epsilon=0.5, samples=None)
        tensor(1.0731)
    """
    check_topk(scores, k, margin)
    check_not_negative("epsilon", epsilon)
    check_samples(samples)
    how = Reduction(**shared)
    if samples is None:
        if noise is not None:
            raise ValueError("noise must be None for samples=None, the exact expectation")
        return _exact_hinge(scores, target, k, epsilon, margin, how)
    if noise is None:
        backend = choose(
            "noised_topk_hinge",
            triton=lambda asked: cuda.refusal(scores, target, k, samples, margin, asked),
            numba=lambda _: cpu.refusal(scores, k + 1, epsilon, target),
        )
    else:
        check_noise(noise, scores.shape)
        backend = "torch"
    if backend == "torch":  # which draws its own noise
        plain = noised_losses(k, epsilon, samples, margin, noise, generator)
        return reduce_loss(plain, scores, target, how)
    check_generators(generator, target.numel())
    seeds = seeds_of(generator, scores.device)
    kernels = cuda.TritonNoisedHinge if backend == "triton" else cpu.NumbaNoisedHinge
    return reduce_complete(kernels(k, epsilon, samples, how.ignore_index), scores, target, how, margin, seeds)


@takes_single_rows
def noised_imbalanced_topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    margins: Tensor,
    epsilon: float = 0.01,
    samples: int | None = 5,
    scale: float = 50.0,
    noise: Tensor | None = None,
    generator: torch.Generator | Sequence[torch.Generator] | None = None,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Noised imbalanced top-K hinge: :func:`noised_topk_hinge` of cosines, with larger margins for rarer classes.

    .. math:: \lambda \Bigl(m_y + \frac{1}{B} \sum_b (s + \varepsilon Z_b)_{[K+1]} - s_y\Bigr)_+

    Args:
        scores: cosines ``(N, L)`` or ``(N, L, ...)``, as :class:`~topk_losses.CosineHead` returns them; -inf
            masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        margins: m, one per class ``(L,)``, in the units of the cosines, see :func:`~topk_losses.uneven_margins`.
        epsilon: ε, the standard deviation of the noise in the units of the cosines, at least 0.
        samples: B, the number of draws, or None for the exact expectation.
        scale: λ, above 0; it multiplies the hinge after noise and margin are added.
        noise: standard normal draws Z to use instead of new ones, ``(B, N, L)`` or ``(B, N, L, ...)``.
        generator: random generator of the draws, on the scores' device. For an ensemble, a sequence of generators: the
            samples are divided evenly among them, and each draws the noise that it would draw for its share alone.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: as :func:`noised_topk_hinge`, and for λ not above 0.

    References:
        Garcin et al.: Stochastic smoothing of the top-K calibrated hinge loss for deep imbalanced
        classification, ICML 2022, (13); the order of scale and margin is that of its authors' code.

    Example:
        >>> import torch
        >>> scores, target = torch.tensor([[0.9, 0.1, 0.5, 0.0]]), torch.tensor([1])
        >>> margins = torch.tensor([0.1, 0.2, 0.1, 0.1])
        >>> noised_imbalanced_topk_hinge(scores, target, k=2, margins=margins, epsilon=0.0)
        tensor(10.)
    """
    check_scores(scores)
    check_margins(margins, scores.shape[1])
    check_positive("scale", scale)
    return scale * noised_topk_hinge(scores, target, k, epsilon, samples, margins, noise, generator, **shared)


def _exact_hinge(
    scores: Tensor, target: Tensor, k: int, epsilon: float, margin: float | Tensor, how: Reduction
) -> Tensor:
    """:func:`~topk_losses.functional.noised_topk_hinge` by its expectation, for arguments that have been checked."""

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        above = expected_above(rows, labels, k + 1, epsilon) + per_label(margin, labels, rows)
        return with_nan_where_invalid(above, rows.detach().amax(1, keepdim=True)).relu()

    return reduce_loss(losses, scores, target, how)
