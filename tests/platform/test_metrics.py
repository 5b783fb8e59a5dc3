from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_platform.metrics import Scorer, candidates, macro_average, topk_credit


def by_every_tie_break(scores: list[int], target: int, k: int) -> float:
    """The share of the orders of equal scores that put the target among the first k."""
    hits = total = 0
    for order in permutations(range(len(scores))):
        ranked = sorted(order, key=lambda j: -scores[j])  # stable: the permutation breaks ties
        hits += target in ranked[:k]
        total += 1
    return hits / total


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
    scorer = a_scorer(6)
    alone = torch.stack([scorer(*pair) for pair in zip(scores, target, strict=True)])
    torch.testing.assert_close(scorer(scores, target), alone, rtol=0, atol=0, equal_nan=True)


@given(st.integers(1, 30), st.integers(2, 7), st.floats(0.01, 1), st.integers(0, 1000))
def test_candidates_are_the_least_k_that_reaches_the_accuracy(
    n: int, classes: int, accuracy: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(3, (n, classes), generator=generator).float()
    target = torch.randint(classes, (n,), generator=generator)
    curve = topk_credit(scores, target, range(1, classes + 1)).mean(1)
    least = next(k for k, value in enumerate(curve.tolist(), start=1) if value >= accuracy - 1e-9)
    assert candidates(scores, target, accuracy).item() == least


def test_no_k_is_enough_where_scores_are_missing() -> None:
    assert candidates(torch.full((2, 3), torch.nan), torch.tensor([0, 1]), 0.9).isnan()


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
