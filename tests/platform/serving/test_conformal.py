"""Conformal sets against slow oracles in NumPy, and their coverage over many draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import betabinom

from topk_platform import UserError
from topk_platform.metrics import log_probabilities
from topk_platform.serving.conformal import calibrate, nonconformity, prevalences_of, sets, temperature_of
from topk_platform.serving.set_calibration import METHODS, SetCalibration, rank_of

CLASSES = 6
EQUAL = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)


def drawn(samples: int, seed: int, sharpness: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores, and classes drawn by the softmax of them; with another sharpness the network is badly calibrated."""
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(samples, CLASSES, generator=generator)
    noise = torch.empty_like(scores).exponential_(generator=generator).log()
    return sharpness * scores, (scores - noise).argmax(1)


def oracle(p: np.ndarray, method: str, prevalences: np.ndarray) -> list[float]:
    """The scores of one sample's classes as their papers write them, and the least there is for the best class."""
    if method == "threshold":
        values, least = [1 - own for own in p], 0.0
    else:
        values = [-own / share for own, share in zip(p, prevalences, strict=True)]
        least = -1 / min(prevalences)
    return [least if value == min(values) else value for value in values]


def as_written(values: np.ndarray, method: str) -> np.ndarray:
    """Our scores as the papers write them."""
    result: np.ndarray = 1 - np.exp(-values) if method == "threshold" else -np.exp(-values)
    return result


rows = st.lists(st.integers(-6, 6), min_size=CLASSES, max_size=CLASSES)


@pytest.mark.parametrize("method", METHODS)
@given(rows)
def test_scores_order_classes_as_the_papers_do(method: str, row: list[int]) -> None:
    """With ties among the classes; ours are functions of the papers' values."""
    shares = torch.arange(1, CLASSES + 1).double() / 21
    logs = log_probabilities(torch.tensor([row]))
    result = nonconformity(logs, method, shares)[0].numpy()
    expected = np.array(oracle(logs.exp()[0].numpy(), method, shares.numpy()))
    np.testing.assert_allclose(as_written(result, method), expected, rtol=1e-12, atol=1e-14)


def slow_sets(
    scores: np.ndarray, calibration: SetCalibration, coverage: float, method: str
) -> list[list[bool]]:
    """All classes whose score is at most the threshold, one by one."""
    rank = math.ceil(round((calibration.samples + 1) * coverage, 6))
    threshold = sorted(calibration.nonconformity[method])[rank - 1]
    result = []
    for row in scores / calibration.temperature:
        p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        values = oracle(p, method, np.array(calibration.prevalences))
        limit = as_written(np.array(threshold), method)
        result.append([value <= limit + 1e-12 for value in values])
    return result


@pytest.mark.parametrize("method", METHODS)
def test_a_network_that_was_right_on_all_tuning_samples_gives_sets_of_one_class(method: str) -> None:
    """Its temperature is the least, so that the probabilities of all other classes are 0 in float64."""
    scores, labels = 5 * torch.eye(4).repeat(10, 1), torch.arange(40) % 4
    calibration = calibrate(scores, labels, prevalences_of(torch.ones(4)), "key")
    inside, probabilities = sets(scores, calibration, 0.9, method)
    assert calibration.temperature == pytest.approx(1e-3) and set(probabilities.flatten().tolist()) == {0, 1}
    assert torch.equal(inside, scores > 0)


@pytest.mark.parametrize("method", METHODS)
def test_sets_are_those_of_the_oracle(method: str) -> None:
    scores, labels = drawn(400, 0, sharpness=3)
    calibration = calibrate(scores, labels, prevalences_of(torch.arange(1, CLASSES + 1)), "key")
    assert SetCalibration.from_json(calibration.to_json()) == calibration
    others, _ = drawn(200, 1, sharpness=3)
    for coverage in (0.5, 0.9, 0.99):
        inside, probabilities = sets(others, calibration, coverage, method)
        assert inside.tolist() == slow_sets(others.double().numpy(), calibration, coverage, method)
        assert inside.any(1).all()
    torch.testing.assert_close(probabilities, (others.double() / calibration.temperature).softmax(1))


@pytest.mark.parametrize("method", ["threshold", pytest.param("prevalence", marks=pytest.mark.slow)])
def test_fresh_samples_are_covered_as_often_as_exchangeability_says(method: str) -> None:
    """In 200 draws, how many of m fresh samples are covered is beta-binomial, for the scores near the threshold differ.

    The requested coverage is above the top-1 accuracy, so that the threshold is no best class's. By chance the mean of
    the draws would be outside the bounds once in a million times.
    """
    draws, samples, fresh, coverage = 200, 99, 100, 0.9
    covered = []
    for draw in range(draws):
        scores, labels = drawn(4 * samples // 3 + fresh, 10 + draw, sharpness=2)
        known = len(labels) - fresh
        calibration = calibrate(scores[:known], labels[:known], EQUAL, "key")
        assert calibration.samples == samples
        inside, _ = sets(scores[known:], calibration, coverage, method)
        covered.append(int(inside.gather(1, labels[known:, None]).sum()))
    rank = rank_of(coverage, samples)
    law = betabinom(fresh, rank, samples + 1 - rank)
    slack = 4.9 * law.std() / math.sqrt(draws)
    assert law.mean() - slack <= np.mean(covered) <= law.mean() + slack
    # 5 standard errors of a deviation of 200 draws.
    assert law.std() * 0.75 < np.std(covered) < law.std() * 1.25


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 4.0])
def test_the_temperature_has_the_least_negative_log_likelihood(sharpness: float) -> None:
    scores, labels = drawn(1000, 2, sharpness)

    def cost(inverse: float) -> float:
        logs = (scores.double() * inverse).log_softmax(1)
        return float(-logs.gather(1, labels[:, None]).mean())

    best = minimize_scalar(cost, bounds=(1e-3, 50), method="bounded", options={"xatol": 1e-10}).x
    assert temperature_of(scores, labels) == pytest.approx(1 / best, rel=1e-4)
    assert temperature_of(scores, labels) == pytest.approx(sharpness, rel=0.15)


def test_a_temperature_without_a_minimum_stays_within_its_range() -> None:
    scores = torch.eye(2)
    assert temperature_of(scores, torch.tensor([0, 1])) == pytest.approx(1e-3)
    assert temperature_of(scores, torch.tensor([1, 0])) == pytest.approx(1e3)
    assert temperature_of(scores[:0], torch.zeros(0, dtype=torch.long)) == 1


def test_prevalences_bring_the_coverage_of_classes_together() -> None:
    """On a long tail: the mean coverage over classes is larger than that of the threshold at the same requested one."""
    generator = torch.Generator().manual_seed(3)
    counts = torch.tensor([600, 200, 100, 40, 20, 10])
    labels = counts.double().div(counts.sum()).multinomial(20_000, replacement=True, generator=generator)
    features = torch.randn(len(labels), CLASSES, generator=generator) + 1.5 * torch.eye(CLASSES)[labels]
    scores = 1.5 * features + counts.double().log()  # Bayes' own
    calibration = calibrate(scores[:10_000], labels[:10_000], prevalences_of(counts), "key")
    means = {}
    for method in ("threshold", "prevalence"):
        inside, _ = sets(scores[10_000:], calibration, 0.9, method)
        covered = inside.gather(1, labels[10_000:, None])[:, 0].double()
        assert covered.mean() == pytest.approx(0.9, abs=0.015)
        means[method] = np.mean([covered[labels[10_000:] == label].mean() for label in range(CLASSES)])
    assert means["prevalence"] > means["threshold"] + 0.1


def test_the_largest_coverage_that_is_promised_is_not_refused() -> None:
    """98 samples guarantee 98.9899 %, which must not be rounded to 98.99 %."""
    calibration = calibrate(*drawn(130, 4), EQUAL, "key")
    assert (calibration.samples, calibration.most) == (98, 0.9898)
    calibration.threshold(calibration.most)
    with pytest.raises(UserError, match=r"can guarantee is 0\.9898$"):
        calibration.threshold(0.9899)
    few = calibrate(*drawn(25, 4), EQUAL, "key")
    assert (few.tuned, few.samples) == (6, 19) and few.threshold(0.95) == max(few.nonconformity["threshold"])
    with pytest.raises(UserError, match=r"0\.96 needs at least 24 calibration samples, .* has 19"):
        few.threshold(0.96)


@pytest.mark.parametrize("method", METHODS)
def test_the_least_coverage_gives_the_least_sets(method: str) -> None:
    scores, labels = drawn(40, 5)
    calibration = calibrate(scores, labels, EQUAL, "key")
    assert calibration.threshold(1e-12, method) == min(calibration.nonconformity[method])


@pytest.mark.parametrize("coverage", [0, 1, 95, -0.5, math.nan, True, "0.9"])
def test_a_coverage_is_a_fraction(coverage: float) -> None:
    scores, labels = drawn(40, 5)
    with pytest.raises(UserError, match=r"coverage must be in \(0, 1\), such as 0.95, got"):
        calibrate(scores, labels, EQUAL, "key").threshold(coverage)


def test_scores_that_are_not_finite_give_no_set() -> None:
    scores, labels = drawn(40, 6)
    calibration = calibrate(scores, labels, EQUAL, "key")
    scores[3, 1] = math.nan
    with pytest.raises(UserError, match="must be finite, and those of input 3 are not"):
        sets(scores, calibration, 0.9, "prevalence")
