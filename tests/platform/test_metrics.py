from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_platform.metrics import evaluate, macro_average, topk_credit


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
    found = topk_credit(
        torch.tensor([scores], dtype=torch.float), torch.tensor([target]), range(1, len(scores) + 1)
    )
    for k, value in enumerate(found[:, 0].tolist(), start=1):
        assert value == pytest.approx(by_every_tie_break(scores, target, k))


def test_a_constant_network_gets_chance_not_everything() -> None:
    found = evaluate(torch.zeros(50, 10), torch.arange(50) % 10, [1, 3])
    assert found == pytest.approx({"top1": 0.1, "top3": 0.3, "macro_top1": 0.1, "macro_top3": 0.3})


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
