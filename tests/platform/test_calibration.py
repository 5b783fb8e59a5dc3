"""Calibration error, log-likelihood and Brier score: against scikit-learn and slow sums, and in hard cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss
from torch import Tensor

from topk_platform.calibration import calibration_error
from topk_platform.metrics import Scorer
from topk_platform.specs import digits_of, less_is_better, measure_of, measures_among, scale_of, unit_of

ASKED = ("brier", "ece", "nll")


def values_of(scores: Tensor, labels: Tensor) -> dict[str, float]:
    nobody = (torch.zeros(scores.shape[-1], dtype=torch.bool),) * 3
    scorer = Scorer((1,), (), nobody, ASKED)
    result = scorer.named(scorer(scores, labels).tolist())
    return {name: result[name] for name in ASKED}


def some(n: int = 200, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, classes, generator=generator) * 2,
        torch.randint(classes, (n,), generator=generator),
    )


def slow_error(scores: Tensor, labels: Tensor, bins: int = 15) -> float:
    """By NumPy, bin by bin: sorted by confidence, hits of equal confidence averaged."""
    p = torch.softmax(scores.double(), -1).numpy()
    confidence, credit = p.max(1), []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        credit.append((row[label] == max(row)) / row.count(max(row)))
    hits = np.array([np.mean(np.array(credit)[confidence == c]) for c in confidence])
    order = np.argsort(confidence, kind="stable")
    numbers = np.arange(len(order)) * bins // len(order)
    parts = [order[numbers == b] for b in range(bins)]
    return sum(
        len(part) / len(order) * abs(confidence[part].mean() - hits[part].mean())
        for part in parts
        if len(part)
    )


def test_likelihood_and_brier_score_are_scikit_learns() -> None:
    scores, labels = some()
    result = values_of(scores, labels)
    p = torch.softmax(scores.double(), 1).numpy()
    assert result["nll"] == pytest.approx(log_loss(labels.numpy(), p, labels=range(5)), abs=1e-12)
    assert result["brier"] == pytest.approx(np.mean(((p - np.eye(5)[labels]) ** 2).sum(1)), abs=1e-12)
    assert result["ece"] == pytest.approx(slow_error(scores, labels), abs=1e-12)


@given(st.integers(1, 70), st.integers(2, 4), st.integers(0, 1000))
def test_the_error_is_the_slow_one_with_ties_in_any_order(n: int, classes: int, seed: int) -> None:
    """Scores of few values: many samples are equally confident, and often classes are tied for the largest."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(3, (n, classes), generator=generator).float()
    labels = torch.randint(classes, (n,), generator=generator)
    result = values_of(scores, labels)["ece"]
    assert result == pytest.approx(slow_error(scores, labels), abs=1e-9)
    order = torch.randperm(n, generator=generator)
    assert values_of(scores[order], labels[order])["ece"] == pytest.approx(result, abs=1e-12)


def test_probabilities_that_are_right_have_little_error() -> None:
    """Labels drawn from the softmax itself: what remains of the error is chance, some 0.4 / sqrt(samples a bin)."""
    scores, _ = some(60_000)
    labels = torch.multinomial(scores.softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    assert values_of(scores, labels)["ece"] < 0.01
    assert values_of(3 * scores, labels)["ece"] > 0.1
    assert values_of(0 * scores, labels)["ece"] == pytest.approx(0, abs=1e-12)  # chance, and it says so


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_large_scores_of_any_precision_are_reported_exactly(kind: torch.dtype) -> None:
    scores = torch.tensor([[3e4, 0.0, -3e4], [0.0, 3e4, 0.0]]).to(kind)
    wrong = values_of(scores, torch.tensor([1, 1]))
    gap = scores[0, 0].double().item()
    assert wrong["nll"] == pytest.approx(gap / 2) and wrong["brier"] == pytest.approx(1)
    right = values_of(scores, torch.tensor([0, 1]))
    assert right == {"brier": 0, "ece": 0, "nll": 0}


def test_a_nan_makes_the_likelihood_infinite_and_spoils_no_other() -> None:
    scores, labels = torch.tensor([[0.0, 0.0], [float("nan"), 0.0]]), torch.tensor([0, 0])
    result = values_of(scores, labels)
    assert result["nll"] == math.inf and result["brier"] == pytest.approx((0.5 + 1) / 2)


def test_a_stack_is_measured_as_each_of_its_networks() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(4, (3, 40, 6), generator=generator).float()
    labels = torch.randint(6, (3, 40), generator=generator)
    together = Scorer((1,), (), (), ASKED)(scores, labels)
    alone = [Scorer((1,), (), (), ASKED)(*pair) for pair in zip(scores, labels, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=0, atol=1e-15)


def test_fewer_samples_than_bins_are_a_bin_each() -> None:
    confidence, hit = torch.tensor([0.5, 0.7, 0.9]).double(), torch.tensor([0.0, 1.0, 1.0]).double()
    assert calibration_error(confidence, hit).item() == pytest.approx((0.5 + 0.3 + 0.1) / 3)


def test_less_of_them_is_better_and_each_has_its_unit() -> None:
    assert measures_among(["top1", "nll", "size95", "ece", "autkc5", "brier"]) == (
        *("autkc5", "brier", "ece", "nll", "size95"),
    )
    assert all(map(less_is_better, ASKED)) and not any(m.is_of_sets for m in map(measure_of, ASKED) if m)
    assert [unit_of(name) for name in ASKED] == ["%", "%", "nats"]
    assert [scale_of(name) for name in ASKED] == [100, 100, 1] and digits_of("nll") == 3
