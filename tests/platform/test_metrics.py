"""Top-K credit, candidates, means over classes and calibration, beside slow definitions of them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss
from torch import Tensor

from topk_platform.metrics import Scorer, candidates, macro_average, target_rank, topk_credit

ASKED = ("brier", "ece", "nll")


def by_every_tie_break(scores: list[int], target: int, k: int) -> float:
    """The share of the orders of equal scores that put the target among the first k."""
    orders = permutations(range(len(scores)))
    ranked = (
        sorted(order, key=lambda j: -scores[j]) for order in orders
    )  # stable: the permutation breaks ties
    return float(np.mean([target in ranks[:k] for ranks in ranked]))


@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.data())
def test_credit_is_the_expectation_over_tie_breaks(scores: list[int], data: st.DataObject) -> None:
    target = data.draw(st.integers(0, len(scores) - 1))
    result = topk_credit(
        torch.tensor([scores], dtype=torch.float), torch.tensor([target]), range(1, len(scores) + 1)
    )
    for k, value in enumerate(result[:, 0].tolist(), start=1):
        assert value == pytest.approx(by_every_tie_break(scores, target, k))


def a_scorer(classes: int, topk: tuple[int, ...] = (1, 3)) -> Scorer:
    """Even classes are many-shot, odd ones few-shot."""
    even = torch.arange(classes) % 2 == 0
    return Scorer(topk, (0.5, 0.99), (even, torch.zeros_like(even), ~even))


def test_a_constant_network_gets_chance_not_everything() -> None:
    scorer = a_scorer(10)
    result = scorer.named(scorer(torch.zeros(50, 10), torch.arange(50) % 10).tolist())
    chance = {f"{kind}top{k}": k / 10 for kind in ("", "macro_", "many_", "few_") for k in (1, 3)}
    assert result == pytest.approx({**chance, "candidates50": 5, "candidates99": 10})


def test_a_stack_is_scored_as_each_of_its_networks() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(4, (3, 40, 6), generator=generator).float()
    target = torch.randint(6, (3, 40), generator=generator)
    scorer = replace(a_scorer(6), measures=ASKED)
    alone = torch.stack([scorer(*pair) for pair in zip(scores, target, strict=True)])
    torch.testing.assert_close(scorer(scores, target), alone, rtol=0, atol=1e-15, equal_nan=True)


@given(st.integers(1, 30), st.integers(2, 7), st.floats(0.01, 1), st.integers(0, 1000))
def test_candidates_are_the_least_k_that_reaches_the_accuracy(
    n: int, classes: int, accuracy: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(3, (n, classes), generator=generator).float()
    target = torch.randint(classes, (n,), generator=generator)
    curve = topk_credit(scores, target, range(1, classes + 1)).mean(1)
    least = next(k for k, value in enumerate(curve.tolist(), start=1) if value >= accuracy - 1e-9)
    assert candidates(*target_rank(scores, target), scores.shape[-1], accuracy).item() == least


def test_no_k_is_enough_where_scores_are_missing() -> None:
    assert candidates(*target_rank(torch.full((2, 3), torch.nan), torch.tensor([0, 1])), 3, 0.9).isnan()


def test_nan_scores_nothing_and_only_in_its_row() -> None:
    scores = torch.tensor([[2.0, 1.0], [float("nan"), 0.0], [float("inf"), 0.0]])
    assert topk_credit(scores, torch.tensor([0, 1, 0]), [1, 2])[1].tolist() == [1, 0, 1]


@given(st.integers(1, 40), st.integers(2, 6), st.integers(0, 1000))
def test_macro_is_the_mean_of_the_classes_own_means(n: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (n,), generator=generator)
    credit = torch.rand(2, n, generator=generator, dtype=torch.float64)
    own = [credit[:, target == c].mean(1) for c in range(classes) if (target == c).any()]
    assert torch.allclose(macro_average(credit, target, classes), torch.stack(own).mean(0))


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
