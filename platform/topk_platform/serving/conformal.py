"""Conformal sets: temperature, conformity scores, calibration and the sets of classes."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from topk_platform.errors import UserError
from topk_platform.metrics import log_probabilities
from topk_platform.serving.set_calibration import METHODS, SetCalibration

__all__ = ["calibrate", "check_finite", "nonconformity", "prevalences_of", "sets", "temperature_of"]

_TUNING = 4  # one sample in four decides the temperature, the others decide the thresholds
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


def nonconformity(logs: Tensor, method: str, prevalences: Tensor) -> Tensor:
    """Return the nonconformity of each class with its sample; a set holds the classes up to a threshold.

    Let p be the probability of a class.

    - ``threshold``: ``-log p``, which orders classes as ``1 - p`` does (Sadinle, Lei, Wasserman, JASA 2019).
    - ``prevalence``: ``-log(p / prevalence)``, for a high mean coverage over classes (Ding, Fermanian, Salmon 2025).

    The class of a sample that conforms best gets the smallest possible value, so it is in every set: an empty set would
    not help anybody. Calibration counts this class in the same way, so the coverage stays as requested.

    Args:
        logs: Log probabilities ``(n, L)``, as :func:`~topk_platform.metrics.log_probabilities` returns them.
        method: One of :data:`~topk_platform.serving.set_calibration.METHODS`.
        prevalences: The share of each class in the training set, ``(L,)``.

    Returns:
        float64 ``(n, L)``.

    Example:
        >>> logs = torch.tensor([[0.5, 0.3, 0.2]]).double().log()
        >>> shares = torch.tensor([0.6, 0.3, 0.1]).double()
        >>> [round(value, 3) for value in nonconformity(logs, "threshold", shares)[0].tolist()]
        [0.0, 1.204, 1.609]
    """
    if method == "threshold":
        return _with_best_at(-logs, 0.0)
    return _with_best_at(prevalences.log() - logs, float(prevalences.min().log()))


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
    """Return the calibration of a network; sets have their coverage if the samples did not select the network.

    One sample in four, drawn with a fixed seed, decides the temperature. The others decide the thresholds, so the
    guarantee also holds with a temperature that was tuned.

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
    thresholds = {
        method: nonconformity(logs[rest], method, prevalences)
        .gather(1, labels[rest, None])[:, 0]
        .sort()
        .values
        for method in METHODS
    }
    return SetCalibration(
        key,
        temperature,
        len(tuning),
        tuple(prevalences.tolist()),
        {method: tuple(values.tolist()) for method, values in thresholds.items()},
    )


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
        method: One of :data:`~topk_platform.serving.set_calibration.METHODS`.
        first: The number of the first sample among all inputs, for messages.

    Returns:
        bool ``(n, L)`` and float64 ``(n, L)``.

    Raises:
        UserError: as for :meth:`SetCalibration.threshold`, or if a score is not finite.
    """
    threshold = calibration.threshold(coverage, method)
    check_finite(scores, first)
    logs = log_probabilities(scores.double() / calibration.temperature)
    prevalences = torch.tensor(calibration.prevalences, dtype=torch.float64)
    values = nonconformity(logs, method, prevalences)
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
