import math

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st

from topk_losses.functional import topk_entropy


def bisect(f, low, high):
    """The root of a decreasing function."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return (low + high) / 2


def solve(a, k):
    """x and the maximum from the conditions of Karush, Kuhn and Tucker of the problem as the papers print it.

    For a total u, ``x_i = min(exp(a_i - t), u/k)`` with t such that they sum to u; the derivative by u of what is
    then left is ``t + log(1 - u)`` plus the caps' multipliers over k.
    """

    def threshold(u):
        return bisect(lambda t: sum(min(math.exp(v - t), u / k) for v in a) - u, min(a) - 50, max(a) + 50)

    def slope(u):
        t = threshold(u)
        return t + math.log1p(-u) + sum(max(0, v - t - math.log(u / k)) for v in a) / k

    u = bisect(slope, 1e-12, 1 - 1e-12)
    t = threshold(u)
    x = [min(math.exp(v - t), u / k) for v in a]
    return x, value_of(x, a)


def value_of(x, a):
    return sum(p * (v - math.log(p)) for p, v in zip(x, a, strict=True)) - (1 - sum(x)) * math.log(1 - sum(x))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_the_papers_problem_solved_by_its_optimality_conditions(k, spread, sample):
    scores, target = sample(4, 6, spread)
    losses, gradient = with_gradient(lambda s: topk_entropy(s, target, k, reduction="none"), scores)
    for row, y, loss, slope in zip(scores, target.tolist(), losses, gradient, strict=True):
        others = [j for j in range(6) if j != y]
        x, value = solve([(row[j] - row[y]).item() for j in others], k)
        assert loss.item() == pytest.approx(value, rel=1e-9)
        assert slope[others].tolist() == pytest.approx(x, rel=1e-6, abs=1e-9)
        assert slope[y].item() == pytest.approx(-sum(x), rel=1e-6)


@given(data=st.data(), classes=st.integers(3, 8))
def test_no_point_of_the_topk_simplex_has_a_greater_value(data, classes):
    """Every mean of k-subsets' indicators over k, times a total, is in it."""
    k = data.draw(st.integers(1, classes - 2))
    a = data.draw(st.lists(st.floats(-8, 8), min_size=classes - 1, max_size=classes - 1))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10_000)))
    best = torch.rand(200, classes - 1, generator=generator).topk(k, dim=1).indices
    shares = torch.rand(200, generator=generator, dtype=torch.float64)
    z = torch.zeros(classes - 1, dtype=torch.float64).index_add(
        0, best.flatten(), shares.repeat_interleave(k)
    )
    u = data.draw(st.floats(0.01, 0.99))
    x = (u * z / z.sum()).clamp(min=1e-300)
    loss = topk_entropy(torch.tensor([[0.0, *a]], dtype=torch.float64), torch.tensor([0]), k)
    assert loss.item() >= value_of(x.tolist(), a) - 1e-9


def test_at_the_largest_k_the_others_enter_by_their_mean(sample):
    scores, target = sample(30, 6, 3.0)
    own = scores.gather(1, target[:, None]).squeeze(1)
    mean = (scores.sum(1) - own) / 5
    expected = torch.nn.functional.softplus(mean + math.log(5) - own)
    torch.testing.assert_close(topk_entropy(scores, target, 5, reduction="none"), expected)


@pytest.mark.parametrize("spread", [0.5, 5.0, 100.0])
def test_bounds(spread, sample):
    """The set shrinks as K grows; entropy adds to the maximum of ``⟨x, a⟩`` between 0 and log L."""
    scores, target = sample(100, 12, spread)
    own = scores.gather(1, target[:, None])
    others = scores.scatter(1, target[:, None], -torch.inf).sort(descending=True).values
    before = torch.full((100,), torch.inf, dtype=torch.float64)
    for k in range(1, 12):
        losses = topk_entropy(scores, target, k, reduction="none")
        hinge = (others[:, :k].mean(1) - own.squeeze(1)).relu()
        assert (losses <= before + 1e-12).all()
        assert (losses >= hinge - 1e-12).all()
        assert (losses <= hinge + math.log(12) + 1e-12).all()
        before = losses


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1000.0])
def test_float32_whatever_the_range(k, spread, sample):
    """Targets where the loss turns, ``s_y ≈ V``, as random ones hardly are at a large range."""
    scores, target = sample(60, 100, spread)
    turning = topk_entropy(scores.scatter(1, target[:, None], -1e6), target, k, reduction="none") - 1e6
    scores = scores.scatter(1, target[:, None], turning[:, None]).float()
    soft = torch.nn.functional.one_hot(target, 100).float()
    exact, slope = with_gradient(lambda s: topk_entropy(s, target, k, reduction="none"), scores.double())
    assert ((exact > 0.1) & (exact < 2)).all()
    for labels in (target, soft):
        losses, gradient = with_gradient(lambda s, y=labels: topk_entropy(s, y, k, reduction="none"), scores)
        torch.testing.assert_close(losses.double(), exact, rtol=2e-6, atol=1e-6)
        torch.testing.assert_close(gradient.double(), slope, rtol=0, atol=1e-6)


def test_the_number_of_capped_classes_by_hand():
    """Others 10, 0, 0 at K = 2: the first has 1/2, the two rest 1/4 each."""
    scores = torch.tensor([[0.0, 10.0, 0.0, 0.0]], dtype=torch.float64)
    loss, gradient = with_gradient(lambda s: topk_entropy(s, torch.tensor([0]), 2), scores)
    value = 5 + math.log(2) / 2 + math.log(4) / 2
    assert loss.item() == pytest.approx(math.log1p(math.exp(value)))
    u = 1 / (1 + math.exp(-value))
    assert gradient[0].tolist() == pytest.approx([-u, u / 2, u / 4, u / 4])
