"""Conformal sets: temperature, conformity scores, calibration and the sets of classes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from topk_platform.errors import UserError
from topk_platform.metrics import log_probabilities
from topk_platform.serving.sets.set_calibration import METHODS, SetCalibration, rank_of

__all__ = ["calibrate", "check_finite", "nonconformity", "prevalences_of", "sets", "temperature_of"]

_TUNING = 4  # one sample in four decides the temperature and RAPS' values, the others decide the thresholds
_PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5)  # RAPS' penalties that the paper's code tries
_TUNED_AT = 0.9  # the coverage at which RAPS' values are chosen, as in the paper
_HALVINGS = 60
_RANGE = 1e3  # temperatures are in [1 / _RANGE, _RANGE]


def temperature_of(scores: Tensor, labels: Tensor) -> float:
    """Return the temperature T that minimises the negative log-likelihood of ``softmax(scores / T)``.

    The negative log-likelihood is convex in ``1 / T``, so its slope has one zero. Bisection searches for it in
    ``[1e-3, 1e3]``. Without samples, T is 1.

    Args:
        scores: ``(n, L)``.
        labels: int64 ``(n,)``.

    Source:
        Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017.

    Example:
        >>> labels = torch.tensor([0, 0, 0, 1])
        >>> sharp = torch.tensor([[6.0, 0.0]]).expand(4, 2)  # sure of class 0, right three times in four
        >>> round(temperature_of(sharp, labels), 3) == round(6 / torch.tensor(3.0).log().item(), 3)
        True
    """
    if not len(labels):
        return 1.0
    scores = scores.double()
    own = scores.gather(1, labels[:, None])[:, 0]
    low, high = 1 / _RANGE, _RANGE  # the bounds of 1 / T
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        expected = ((scores * middle).softmax(1) * scores).sum(1)
        low, high = (low, middle) if (expected - own).mean() > 0 else (middle, high)
    return float(1 / (low * high) ** 0.5)


def nonconformity(
    logs: Tensor, method: str, *, rank: int = 0, penalty: float = 0.0, prevalences: Tensor | None = None
) -> Tensor:
    """Return the nonconformity of each class with its sample; a set holds the classes up to a threshold.

    Let p be the probability of a class, and ``o`` its rank: the number of classes with a probability of at least p.

    - ``threshold``: ``-log p``, which orders classes as ``1 - p`` does (Sadinle, Lei, Wasserman, JASA 2019).
    - ``aps``: the sum of the probabilities that are at least p, minus 1 (Romano, Sesia, Candès, NeurIPS 2020). This is
      the paper's score with u = 1: nothing is random, so an image always gets the same set.
    - ``raps``: the value of ``aps`` plus ``penalty · max(o - rank, 0)`` (Angelopoulos, Bates, Jordan, Malik, ICLR
      2021).
    - ``prevalence``: ``-log(p / prevalence)``, for a high mean coverage over classes (Ding, Fermanian, Salmon 2025).

    The class of a sample that conforms best gets the smallest possible value, so it is in every set: an empty set would
    not help anybody. Calibration counts this class in the same way, so the coverage stays as requested.

    Args:
        logs: Log probabilities ``(n, L)``, as :func:`~topk_platform.metrics.log_probabilities` returns them.
        method: One of :data:`~topk_platform.serving.sets.set_calibration.METHODS`.
        rank: RAPS' rank; classes with a larger rank are penalised.
        penalty: RAPS' penalty per rank.
        prevalences: The share of each class in the training set, ``(L,)``; by default all are equal.

    Returns:
        float64 ``(n, L)``.

    Example:
        >>> logs = torch.tensor([[0.5, 0.3, 0.2]]).double().log()
        >>> [round(value, 6) for value in (1 + nonconformity(logs, "aps"))[0].tolist()]
        [0.0, 0.8, 1.0]
    """
    if method == "threshold":
        return _with_best_at(-logs, 0.0)
    if method == "prevalence":
        shares = logs.new_full((logs.shape[1],), 1 / logs.shape[1]) if prevalences is None else prevalences
        return _with_best_at(shares.log() - logs, float(shares.min().log()))
    masses = logs.exp()
    ascending = masses.sort(1).values
    smaller = torch.searchsorted(ascending, masses)  # how many classes are less probable
    # Probabilities are summed from the smallest on, because sums near 1 would round to the same value.
    below = torch.nn.functional.pad(ascending.cumsum(1), (1, 0)).gather(1, smaller)
    ranks = (masses.shape[1] - smaller).double()
    excess = penalty * (ranks - rank).clamp(min=0) if method == "raps" else 0.0
    # Not by the values, which are all 0 if all but one of the probabilities are 0 in float64.
    best = logs == logs.amax(1, keepdim=True)
    return (excess - below).masked_fill(best, -1.0)


def _with_best_at(values: Tensor, least: float) -> Tensor:
    return values.masked_fill(values == values.amin(1, keepdim=True), least)


def prevalences_of(counts: Tensor) -> Tensor:
    """Return the share of each class, float64 ``(L,)``; a class without samples counts as having one.

    Args:
        counts: The number of samples of each class, ``(L,)``.

    Example:
        >>> prevalences_of(torch.tensor([6, 3, 0])).tolist()
        [0.6, 0.3, 0.1]
    """
    counts = counts.double().clamp(min=1)
    return counts / counts.sum()


def calibrate(scores: Tensor, labels: Tensor, prevalences: Tensor, key: str) -> SetCalibration:
    """Return the calibration of a network, from samples that selected neither the network nor its values.

    One sample in four, drawn with a fixed seed, decides the temperature and RAPS' values. The others decide the
    thresholds, so the guarantee also holds with tuned values.

    Args:
        scores: The network's scores of these samples, ``(n, L)``.
        labels: Their classes, int64 ``(n,)``.
        prevalences: The share of each class in the training set, float64 ``(L,)``, see :func:`prevalences_of`.
        key: The key of the network's trial.

    Raises:
        UserError: if a score is not finite.
    """
    check_finite(scores)
    order = torch.randperm(len(labels), generator=Generator().manual_seed(0))
    tuning, rest = order[: len(order) // _TUNING], order[len(order) // _TUNING :]
    temperature = temperature_of(scores[tuning], labels[tuning])
    logs = log_probabilities(scores.double() / temperature)
    rank, penalty = _tuned(logs[tuning], labels[tuning])
    options = {"rank": rank, "penalty": penalty, "prevalences": prevalences}
    return SetCalibration(
        key,
        temperature,
        len(tuning),
        rank,
        penalty,
        tuple(prevalences.tolist()),
        {method: _sorted_scores(logs[rest], labels[rest], method, options) for method in METHODS},
    )


def _sorted_scores(
    logs: Tensor, labels: Tensor, method: str, options: Mapping[str, object]
) -> tuple[float, ...]:
    own = nonconformity(logs, method, **options).gather(1, labels[:, None])[:, 0]  # type: ignore[arg-type]
    return tuple(own.sort().values.tolist())


def _tuned(logs: Tensor, labels: Tensor) -> tuple[int, float]:
    """Return RAPS' rank and penalty, chosen as in its paper.

    The rank is a quantile of the true classes' ranks. The penalty is the one that gives the smallest sets.
    """
    if not len(labels):
        return logs.shape[1], _PENALTIES[0]
    quantile = min(rank_of(_TUNED_AT, len(labels)), len(labels)) - 1
    own = logs.gather(1, labels[:, None])
    rank = int((logs >= own).sum(1).sort().values[quantile])

    def size(penalty: float) -> float:
        values = nonconformity(logs, "raps", rank=rank, penalty=penalty)
        threshold = values.gather(1, labels[:, None])[:, 0].sort().values[quantile]
        return float((values <= threshold).double().sum(1).mean())

    return rank, min(_PENALTIES, key=size)


def sets(
    scores: Tensor, calibration: SetCalibration, coverage: float, method: str, first: int = 0
) -> tuple[Tensor, Tensor]:
    """Return which classes are in each sample's set, and all classes' calibrated probabilities.

    A set holds the classes whose nonconformity is at most the threshold. The class with the smallest nonconformity is
    always in the set.

    Args:
        scores: The network's scores, ``(n, L)``.
        calibration: The network's calibration.
        coverage: The requested coverage, in ``(0, 1)``.
        method: One of :data:`~topk_platform.serving.sets.set_calibration.METHODS`.
        first: The number of the first sample among all inputs, for messages.

    Returns:
        bool ``(n, L)`` and float64 ``(n, L)``.

    Raises:
        UserError: as for :meth:`SetCalibration.threshold`, or if a score is not finite.
    """
    threshold = calibration.threshold(coverage, method)
    check_finite(scores, first)
    logs = log_probabilities(scores.double() / calibration.temperature)
    values = nonconformity(
        logs,
        method,
        rank=calibration.rank,
        penalty=calibration.penalty,
        prevalences=torch.tensor(calibration.prevalences, dtype=torch.float64),
    )
    return values <= threshold, logs.exp()


def check_finite(scores: Tensor, first: int = 0) -> None:
    """Raise ``UserError`` if a score is not finite.

    Args:
        scores: The network's scores, ``(n, L)``.
        first: The number of the first sample among all inputs, for the message.
    """
    if not scores.isfinite().all():
        number = first + int((~scores.isfinite()).any(1).nonzero()[0])
        raise UserError(f"the network's scores must be finite, and those of input {number} are not")
