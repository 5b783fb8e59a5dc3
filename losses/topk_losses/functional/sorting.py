"""The top-K cross-entropy with differentiable sorting networks of Petersen et al. 2022."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from topk_losses._core.backends import choose
from topk_losses._core.checks import check_positive, check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._sorting import cpu
from topk_losses._sorting.plain import RELAXATIONS, Network, plain_losses

__all__ = ["check_sorting", "sorting_topk_cross_entropy"]


@takes_single_rows
def sorting_topk_cross_entropy(
    scores: Tensor,
    target: Tensor,
    k: int,
    steepness: float = 2.0,
    candidates: int = 16,
    relaxation: str = "cauchy",
    mixture: Sequence[float] | None = None,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Top-K cross-entropy: minus the log-probability that a relaxed sorting network ranks the target in the top K.

    .. math:: -\log \sum_{j \le K} P_j \cdot \Pr(\text{rank of } y \le j)

    P (``mixture``) weighs top-1 to top-K; by default all weight is on K. The target and the m - 1 largest other
    scores (m is ``candidates``) enter Batcher's bitonic network with m wires. A comparator of scores a and b puts a
    first with probability ``F(β (a - b))``, and each of its two outputs is the expected value. F is the distribution
    function of the Cauchy distribution, ``1/2 + arctan(x) / π``, or the logistic function. With Cauchy no sorted
    value falls when a score rises; for the target's probability this holds only approximately. As in the authors'
    code, and for stability, the probability of rank 1 is the softmax over the candidates. So P_1 = 1 with every class
    a candidate gives cross-entropy.

    The wires start with the target, then the other scores in descending order. Variants of the authors that are not
    provided: odd-even networks, splitter selection networks (they save work that is not needed here, since only the
    target's row of the permutation matrix is computed), ART, and other relaxations of sorting.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss, at L times the
            time.
        k: K, in ``[1, L - 1]`` and below ``candidates``.
        steepness: β, the inverse temperature, above 0.
        candidates: m, the number of wires, a power of two; it may exceed L.
        relaxation: ``"cauchy"`` or ``"logistic"``.
        mixture: P_1 … P_K, each at least 0, with sum 1; None for P_K = 1.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, k outside ``[1, L - 1]``, β not above 0,
            ``candidates`` that is not a power of two above k, unknown relaxations, and P that is not K weights of at
            least 0 with sum 1.

    References:
        Petersen et al.: Differentiable Top-k Classification Learning, ICML 2022; Monotonic Differentiable Sorting
        Networks, ICLR 2022.

    Example:
        >>> import torch
        >>> scores, target = torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1])
        >>> sorting_topk_cross_entropy(scores, target, k=2)
        tensor(0.9830)
        >>> sorting_topk_cross_entropy(scores, target, k=2, mixture=[0.25, 0.75])
        tensor(1.1974)
    """
    check_topk(scores, k)
    shares = check_sorting(k, steepness, candidates, relaxation, mixture)
    network = Network(shares, steepness, candidates, relaxation)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        backend = choose("sorting", numba=lambda _: cpu.refusal(rows, labels, network))
        if backend == "numba":
            return cpu.NumbaSorting(network).losses(rows, labels)
        return plain_losses(rows, labels, network)

    return reduce_loss(losses, scores, target, Reduction(**shared))


def check_sorting(
    k: int, steepness: float, candidates: int, relaxation: str, mixture: Sequence[float] | None
) -> tuple[float, ...]:
    """Check the parameters of the network and the mixture, and return the K weights P.

    Raises:
        ValueError: as :func:`sorting_topk_cross_entropy`.
    """
    check_positive("steepness", steepness)
    whole = isinstance(candidates, int) and not isinstance(candidates, bool)
    if not whole or candidates <= k or candidates & (candidates - 1):
        raise ValueError(f"candidates must be a power of two above k = {k}, got {candidates!r}")
    if relaxation not in RELAXATIONS:
        raise ValueError(f"relaxation must be one of {', '.join(RELAXATIONS)}, got {relaxation!r}")
    shares = (0.0,) * (k - 1) + (1.0,) if mixture is None else tuple(float(share) for share in mixture)
    if (
        len(shares) != k
        or not all(share >= 0 for share in shares)
        or not math.isclose(sum(shares), 1, abs_tol=1e-6)
    ):
        raise ValueError(f"mixture must be k = {k} numbers of at least 0 that sum to 1, got {mixture!r}")
    return shares
