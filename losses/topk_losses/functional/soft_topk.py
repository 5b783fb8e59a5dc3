"""The losses on the soft top-K membership that a threshold defines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from topk_losses._core.backends import Refusal, choose
from topk_losses._core.checks import check_positive, check_soft_topk, check_topk
from topk_losses._core.reduction import Reduction, Shared, names_shared, reduce_loss, takes_single_rows
from topk_losses._soft_topk import cpu, cuda
from topk_losses._soft_topk.laplace import LapSum
from topk_losses._soft_topk.plain import PlainSoftTopK
from topk_losses._sorting import cpu as sorting_cpu
from topk_losses._sorting.plain import RELAXATIONS, Network, plain_losses

__all__ = ["lapsum_topk_loss", "soft_topk_loss", "sorting_topk_cross_entropy"]


@takes_single_rows
def soft_topk_loss(
    scores: Tensor,
    target: Tensor,
    k: int,
    tau: float = 1.0,
    shape: str = "logistic",
    form: str = "log",
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Soft top-K loss: ``-log p_y`` or ``1 - p_y``, with p_y the target's soft membership in the top K.

    .. math:: -\log p_y \;\text{ or }\; 1 - p_y, \qquad p_j = F\bigl((s_j - \theta) / \tau\bigr), \qquad
        \sum_j p_j = K

    The shapes F are those of :func:`soft_topk`. The form ``"log"`` is ``-log p_y``, computed from log p_y directly,
    so it is exact however small p_y is. With the logistic shape it is the loss of the LML layer of Amos et al. 2019,
    with a threshold exact to rounding (their solver stops at 1e-4); with the Laplace shape it is
    :func:`lapsum_topk_loss`; with the midpoint it is the loss of DFTopK. The form ``"error"`` is the soft top-K
    error ``1 - p_y``. It is at most 1, which makes it robust to wrong labels.

    The gradient is ``F'_y (w_j - 1[j = y]) / τ``, times ``1 / p_y`` for ``"log"``, with ``w_j = F'_j / Σ F'``. It
    sums to 0 over each row. It does not differentiate through the search for θ.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        tau: τ, above 0.
        shape: ``"logistic"``, ``"laplace"``, ``"gaussian"``, ``"clip"``, ``"power"`` or ``"midpoint"``.
        form: ``"log"`` or ``"error"``. For ``"clip"`` and ``"power"``, whose p can be 0, only ``"error"``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, k outside ``[1, L - 1]``, τ not above 0, unknown
            shapes and forms, and ``"log"`` of a shape whose p can be 0.

    References:
        Amos, Koltun, Kolter: The Limited Multi-Label Projection Layer, arXiv 2019; Struski et al.: LapSum, ICML 2025;
        Sander et al.: Fast, Differentiable and Sparse Top-k, ICML 2023; Zhu et al.: DFTopK, arXiv 2025.

    Example:
        >>> import torch
        >>> soft_topk_loss(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(1.0414)
    """
    check_topk(scores, k)
    check_positive("tau", tau)
    check_soft_topk(shape, form)
    by_log = form == "log"

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        refusals: dict[str, Refusal] = {
            "triton": lambda asked: cuda.refusal(rows, labels, k, shape, by_log, asked),
            "numba": lambda _: cpu.refusal(rows),
        }
        backend = choose("soft_topk", **refusals) if labels.shape[1] == 1 else "torch"
        if backend == "torch" and shape == "laplace" and by_log:  # ten times as fast as Newton's method
            return LapSum(k, tau).losses(rows, labels)
        rules = {"triton": cuda.TritonSoftTopK, "numba": cpu.NumbaSoftTopK, "torch": PlainSoftTopK}
        return rules[backend](k, tau, shape, by_log).losses(rows, labels)

    return reduce_loss(losses, scores, target, Reduction(**shared))


@names_shared
def lapsum_topk_loss(
    scores: Tensor,
    target: Tensor,
    k: int,
    temperature: float = 1.0,
    **shared: Unpack[Shared],
) -> Tensor:
    """LapSum top-K loss: :func:`soft_topk_loss` with the Laplace shape, and the temperature as τ.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        k: K, in ``[1, L - 1]``.
        temperature: τ, above 0.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: as for :func:`soft_topk_loss`.

    References:
        Struski et al.: LapSum - One Method to Differentiate Them All: Ranking, Sorting and Top-k Selection, ICML 2025.

    Example:
        >>> import torch
        >>> lapsum_topk_loss(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(1.2736)
    """
    check_positive("temperature", temperature)
    return soft_topk_loss(scores, target, k, temperature, "laplace", **shared)


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
        backend = choose("sorting", numba=lambda _: sorting_cpu.refusal(rows, labels, network))
        if backend == "numba":
            return sorting_cpu.NumbaSorting(network).losses(rows, labels)
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
