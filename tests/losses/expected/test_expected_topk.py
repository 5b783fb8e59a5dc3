"""The exact expectation by torch alone and by Numba's kernels, which have a test file of their own besides.

Against the oracle, normal order statistics and finer grids.
"""

import functools
import math

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from topk_losses import use_backend
from topk_losses._core import numba
from topk_losses._expected import quadrature
from topk_losses.functional import expected_topk, noised_topk_hinge
from topk_losses.testing import oracles


@pytest.fixture(autouse=True, params=["torch", "numba"], scope="module")
def path(request):
    """By torch alone, and by Numba's kernels if it is there."""
    if request.param == "numba" and not numba.is_there():
        pytest.skip("needs Numba")
    with use_backend(request.param):
        yield request.param


@functools.cache
def of_the_oracle(row, k):
    """Value and gradient for a tuple of scores and ε = 1, once for both paths."""
    scores = torch.tensor(row, dtype=torch.float64)
    return with_gradient(lambda s: oracles.expected_topk(s, k, 1.0), scores)


@pytest.mark.parametrize("epsilon", [1e-3, 0.2, 10.0])
@pytest.mark.parametrize("classes", [1, 2, 3, 8])
def test_value_and_gradient_are_those_of_the_oracle(classes, epsilon, sample):
    rows = epsilon * sample(4, classes, spread=3.0)[0]
    for k in range(1, classes + 1):
        value, slope = with_gradient(lambda s, k=k: expected_topk(s, k, epsilon), rows)
        for row, *ours in zip(rows, value, slope, strict=True):
            exact = with_gradient(lambda s, k=k: oracles.expected_topk(s, k, epsilon), row)
            torch.testing.assert_close(ours[0], exact[0], rtol=0, atol=1e-9 * epsilon)
            torch.testing.assert_close(ours[1], exact[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize(
    ("k", "classes"), [(1, 1000), (2, 1000), (6, 1000), (21, 1000), (120, 300), (1, 200), (25, 200)]
)
def test_many_classes(k, classes, spread, sample):
    row = sample(1, classes, spread=spread)[0][0]
    ours = with_gradient(lambda s: expected_topk(s, k, 1.0), row)
    exact = of_the_oracle(tuple(row.tolist()), k)
    torch.testing.assert_close(ours[0], exact[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(ours[1], exact[1], rtol=0, atol=1e-8)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize(("k", "classes"), [(1, 5), (3, 5), (2, 1000), (6, 1000), (700, 1000)])
def test_equal_scores_give_the_normal_order_statistics(k, classes, epsilon):
    """``∫ x n!/((n-k)!(k-1)!) Φ(x)^(n-k) (1-Φ(x))^(k-1) φ(x) dx``, by scipy's adaptive quadrature."""
    log_count = math.lgamma(classes + 1) - math.lgamma(classes - k + 1) - math.lgamma(k)

    def integrand(x):
        log_rest = (classes - k) * stats.norm.logcdf(x) + (k - 1) * stats.norm.logsf(x)
        return x * math.exp(log_count + log_rest + stats.norm.logpdf(x))

    moment = integrate.quad(integrand, -9, 9, points=[-3, -1, 0, 1, 3], epsabs=1e-12, limit=400)[0]
    scores = torch.full((1, classes), 4.0, dtype=torch.float64)
    value, gradient = with_gradient(lambda s: expected_topk(s, k, epsilon), scores)
    assert value.item() == pytest.approx(4.0 + epsilon * moment, abs=1e-8 * epsilon)
    torch.testing.assert_close(gradient, torch.full_like(scores, 1 / classes), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gap", [0.0, 1.0, 3.0, 5.0])
@pytest.mark.parametrize("count", [5, 100])
def test_one_class_between_two_crowds(count, gap):
    """The hardest integrand: wide where the lone class is, narrow in the crowds."""
    row = torch.tensor([gap] * count + [0.0] + [-gap] * count, dtype=torch.float64)
    for k in (count, count + 1):
        expected, _ = of_the_oracle(tuple(row.tolist()), k)
        torch.testing.assert_close(expected_topk(row, k, 1.0), expected, rtol=0, atol=1e-9)


def assert_promised(row, k, rounding):
    """1e-8 for float64 scores, 1e-6 for float32 ones, and what float32 makes of the scores and of the value.

    The slopes sum to 1, so that the value moves by no more than the scores do. It is made of the largest score and of
    the distance from it.
    """
    exact, slope = of_the_oracle(tuple(row.tolist()), k)
    rounded = rounding(row.abs().max(), exact - row.max(), exact).item()
    for dtype, error, further in ((torch.float64, 1e-8, 0), (torch.float32, 1e-6, rounded)):
        value, gradient = with_gradient(lambda s: expected_topk(s, k, 1.0), row.to(dtype))
        torch.testing.assert_close(value.double(), exact, rtol=0, atol=error + further)
        torch.testing.assert_close(gradient.double(), slope, rtol=0, atol=error)


@pytest.mark.parametrize("k", [1, 2, 16])
@pytest.mark.parametrize("near", [1, 3])
def test_crowds_that_a_sample_misjudges(k, near, rounding):
    """Of every eight classes one stands for all in the search for the window: here far too high."""
    row = torch.full((400,), -7.0, dtype=torch.float64)
    row[: 4 * k] = -torch.linspace(0, 2, 4 * k)
    row[4 * k : 4 * k + near] = -2.0
    assert_promised(row, k, rounding)


@pytest.mark.parametrize("k", [1, 6, 16])
@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_crowds_by_power_sums_are_those_swept(k, spread, path, monkeypatch, rounding, sample):
    if path == "numba":
        pytest.skip("of the crowds in torch")
    rows = spread * torch.tensor([[1.0], [0.5]]) * sample(1, 300, 1.0, seed=3)[0]
    for dtype, error in ((torch.float64, 2e-9), (torch.float32, 1e-6)):
        value, gradient = with_gradient(lambda s: expected_topk(s, k, 1.0), rows.to(dtype))
        with monkeypatch.context() as patch:
            patch.setattr(quadrature, "LARGEST_RANK", 0)
            swept, slope = with_gradient(lambda s: expected_topk(s, k, 1.0), rows.to(dtype))
        rounded = 2 * rounding(swept - rows.amax(1), swept)  # of both values
        assert ((value - swept).abs() <= error + (rounded if dtype == torch.float32 else 0)).all()
        torch.testing.assert_close(gradient, slope, rtol=0, atol=error)


@given(
    row=st.lists(st.floats(-5, 5), min_size=2, max_size=6),
    epsilon=st.floats(1e-3, 10),
    data=st.data(),
)
def test_bounds_of_the_expectation(row, epsilon, data):
    k = data.draw(st.integers(1, len(row)))
    scores = torch.tensor(row, dtype=torch.float64)
    excess = (expected_topk(scores, k, epsilon) - scores.sort(descending=True).values[k - 1]).item() / epsilon
    assert -math.sqrt(2 * math.log(k)) - 1e-9 <= excess <= math.sqrt(2 * math.log(len(row) - k + 1)) + 1e-9


@given(row=st.lists(st.floats(-5, 5), min_size=2, max_size=6), epsilon=st.floats(1e-2, 10))
def test_ranks_add_up_to_the_classes(row, epsilon):
    """The mean ranks sum to the mean scores, the ranks' probabilities to 1 over classes and over ranks."""
    scores = torch.tensor(row, dtype=torch.float64, requires_grad=True)
    ranks = torch.stack([expected_topk(scores, k, epsilon) for k in range(1, len(row) + 1)])
    # 1e-8 ε is promised of each.
    assert ranks.sum().item() == pytest.approx(sum(row), abs=1e-8 * epsilon * len(row))
    table = torch.stack([torch.autograd.grad(rank, scores, retain_graph=True)[0] for rank in ranks])
    torch.testing.assert_close(table.sum(0), torch.ones_like(scores), rtol=0, atol=1e-9)
    torch.testing.assert_close(table.sum(1), torch.ones_like(scores), rtol=0, atol=1e-9)
    assert (table > -1e-12).all()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_derivatives(k, sample):
    scores = sample(3, 5, spread=0.5)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda s: expected_topk(s, k, 0.5), scores)
    assert torch.autograd.gradgradcheck(lambda s: expected_topk(s, k, 0.5), scores)


def test_limit_without_noise(sample):
    scores = sample(5, 6)[0]
    exact = scores.sort(descending=True).values
    for k in range(1, 7):
        torch.testing.assert_close(expected_topk(scores, k, 0.0), exact[:, k - 1], rtol=0, atol=0)
        torch.testing.assert_close(expected_topk(scores, k, 1e-6), exact[:, k - 1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [1e6, 1e16, 1e30])
@pytest.mark.parametrize(("k", "classes"), [(6, 200), (31, 300)])
def test_scores_far_apart_are_sorted(k, classes, size, sample):
    """In some of these rows several of the k best are in one group, whose maximum alone is looked at first."""
    rows = size * sample(40, classes)[0]
    hard = rows.topk(k)
    value, gradient = with_gradient(lambda s: expected_topk(s, k, 0.2), rows)
    torch.testing.assert_close(value, hard.values[:, -1], rtol=1e-12, atol=0)
    assert gradient.argmax(1).tolist() == hard.indices[:, -1].tolist()
    torch.testing.assert_close(gradient.amax(1), torch.ones(40, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("classes", [7, 70])
def test_a_class_far_above_the_others_takes_no_precision(classes, rounding, sample):
    rows = sample(4, classes)[0].float()
    rows[:, 2] = 1e6
    target = torch.zeros(4, dtype=torch.int64)
    near = rows.double().clamp(max=50)
    expected = expected_topk(near, 3, 0.2)
    # For float32 scores the kernels' expectation is exact to 1e-6 ε.
    bound = 2e-7 + rounding(expected.abs().max().item())
    torch.testing.assert_close(expected_topk(rows, 3, 0.2).double(), expected, rtol=0, atol=bound)
    losses = [
        noised_topk_hinge(s, target, 2, 0.2, None, 9.0, reduction="none").double() for s in (rows, near)
    ]
    bound = 2e-7 + rounding(losses[1].max().item())
    torch.testing.assert_close(*losses, rtol=0, atol=bound)


def test_pieces_of_a_large_batch_are_the_rows(sample, monkeypatch):
    """Splitting rows and nodes into pieces changes nothing but rounding."""
    rows = sample(7, 11)[0]
    leaves = [rows.clone().requires_grad_() for _ in range(2)]
    results = []
    for leaf, budget in zip(leaves, (1 << 18, 400), strict=True):
        monkeypatch.setattr("topk_losses._expected.plain.BUDGET", budget)
        value = expected_topk(leaf, 3, 0.5)
        (slope,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
        results.append((value, slope, torch.autograd.grad(slope.square().sum(), leaf)[0]))
    for one, many in zip(*results, strict=True):
        torch.testing.assert_close(one, many)


def test_special_scores_have_their_stated_results():
    inf, nan = torch.inf, torch.nan
    odd = [1.0, -inf, 2.0], [-inf, 0.0, -inf], [nan, 0.0, 1.0], [inf, 0.0, 1.0]
    scores = torch.tensor([*odd, [0.0, 0.0, 0.0], [-inf, -inf, -inf]], requires_grad=True)
    for epsilon in (0.0, 0.5):
        value = expected_topk(scores, 2, epsilon)
        torch.testing.assert_close(value[0], expected_topk(torch.tensor([1.0, 2.0]), 2, epsilon))
        assert value[1] == value[5] == -inf
        assert value[2:4].isnan().all()
        (gradient,) = torch.autograd.grad(value[0] + value[4], scores)
        assert gradient.isfinite().all()
        assert gradient[0, 1] == 0
