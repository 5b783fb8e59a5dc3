"""The costs of cardinalities and the loss of a selector, against slow oracles."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_losses.functional import cardinality_costs, cardinality_loss

KS = (1, 2, 4)


def slow_cost(row, label, k, penalty, growth, largest):
    """The chance of a miss over all orders of equal scores, and the price of the set."""
    greater = sum(score > row[label] for score in row)
    tied = sum(score == row[label] for score in row)
    orders = [greater + position < k for position in range(tied)]
    size = math.log(k) / math.log(largest) if growth == "log" else k / largest
    return (1 - sum(orders) / tied + penalty * size) / (1 + penalty)


@pytest.mark.parametrize("growth", ["log", "linear"])
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4),
    st.integers(0, 4),
    st.sampled_from([0.0, 0.01, 2.0]),
)
def test_costs_are_those_of_the_oracle(growth, rows, label, penalty):
    scores = torch.tensor(rows, dtype=torch.float64)
    labels = torch.full((len(rows),), label)
    result = cardinality_costs(scores, labels, KS, penalty, growth)
    expected = [[slow_cost(row, label, k, penalty, growth, KS[-1]) for k in KS] for row in rows]
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64))
    assert result.min() >= 0 and result.max() <= 1


def slow_loss(r, c):
    """As the paper writes it."""
    total = 0.0
    for k in range(len(r)):
        total += (1 - c[k]) * torch.log(sum(torch.exp(r[j] - r[k]) for j in range(len(r))))
    return total


def test_the_loss_and_its_gradient_are_those_of_the_oracle():
    generator = torch.Generator().manual_seed(0)
    r = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    c = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    expected = torch.stack([slow_loss(*pair) for pair in zip(r, c, strict=True)])
    torch.testing.assert_close(cardinality_loss(r, c, reduction="none"), expected)
    for reduction in ("mean", "sum"):
        value = getattr(expected, reduction)()
        torch.testing.assert_close(cardinality_loss(r, c, reduction), value)
    (ours,) = torch.autograd.grad(cardinality_loss(r, c), r)
    (theirs,) = torch.autograd.grad(expected.mean(), r)
    torch.testing.assert_close(ours, theirs)
    q = r.detach().softmax(1)
    torch.testing.assert_close(6 * ours, q * (1 - c).sum(1, keepdim=True) - (1 - c))


def test_large_scores_do_not_overflow_and_half_precision_is_computed_in_float32():
    r = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = cardinality_loss(r, torch.tensor([[1.0, 0.0, 0.0]]))
    loss.backward()
    assert loss.item() == pytest.approx(3e4) and r.grad.isfinite().all()
    assert cardinality_loss(r.detach().half(), torch.zeros(1, 3)).dtype == torch.float32


def test_the_minimiser_chooses_the_cheapest():
    costs = torch.tensor([[1.0, 0.3, 0.4]], dtype=torch.float64)
    r = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([r], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = cardinality_loss(r, costs)
        loss.backward()
        return loss

    optimizer.step(closure)
    chances = r.detach().softmax(1)[0]
    torch.testing.assert_close(
        chances[1:], torch.tensor([0.7, 0.6], dtype=torch.float64) / 1.3, rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cardinalities": (2, 1)}, "cardinalities must be at least one k, ascending"),
        ({"cardinalities": ()}, "cardinalities must be at least one k, ascending"),
        ({"cardinalities": (1, 9)}, r"k must be in \[1, 5\]"),
        ({"penalty": -0.1}, "penalty must be at least 0"),
        ({"growth": "square"}, "growth must be one of"),
        ({"labels": torch.tensor([5])}, r"target must be in \[0, 4\], got 5"),
        ({"labels": torch.tensor([1.7])}, "labels must be a tensor of integers, got torch.float32"),
        ({"labels": [1]}, "labels must be a tensor of integers, got list"),
        ({"scores": torch.zeros(1, 5, 2)}, r"scores must have the shape \(N, L\)"),
        ({"scores": torch.zeros(1, 5, dtype=torch.long)}, "scores must be a floating-point tensor"),
    ],
)
def test_wrong_arguments_are_named(changes, why):
    given_ = {"scores": torch.zeros(1, 5), "labels": torch.tensor([1]), "cardinalities": KS, "penalty": 0.1}
    with pytest.raises(ValueError, match=why):
        cardinality_costs(**{**given_, **changes})
    with pytest.raises(ValueError, match=r"costs must have the shape \(N, C\)"):
        cardinality_loss(torch.zeros(1, 3), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="costs must be a floating-point tensor, got list"):
        cardinality_loss(torch.zeros(1, 2), [[0.0, 1.0]])


@pytest.mark.parametrize("odd", [math.nan, math.inf])
@pytest.mark.parametrize("label", [1, 2])
def test_a_row_with_nan_or_infinity_has_no_cost(odd, label):
    """NaN compares as no greater and no equal score, so that every k would hit."""
    scores = torch.tensor([[3.0, odd, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0]])
    costs = cardinality_costs(scores, torch.tensor([label, label]), KS, penalty=0.1)
    assert costs[0].isnan().all() and costs[1].isfinite().all()
