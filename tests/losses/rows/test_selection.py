"""Compiled loops for the largest scores and for exponentials, and the losses that are made of them."""

from functools import partial

import pytest
import torch
from gradients import with_gradient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from topk_losses import functional, use_backend
from topk_losses._rows import exponentials, selection
from topk_losses._rows.exponentials import kept_and_sum, multiples
from topk_losses._rows.selection import MOST, largest

NAMES = (
    *("topk_hinge", "convex_topk_hinge", "calibrated_topk_hinge", "topk_grouping", "topk_transition"),
    *("truncated_topk_entropy", "topk_entropy", "lapsum_topk_loss", "smooth_topk_hinge", "smooth_topk_svm"),
)
LOSSES = {
    **{name: getattr(functional, name) for name in NAMES},
    "sorting_topk_cross_entropy": partial(functional.sorting_topk_cross_entropy, candidates=32),
}


@pytest.fixture(autouse=True)
def also_for_few_classes():
    """The kernels are right for any number; where they begin to pay is another matter."""
    with use_backend("numba"):
        yield


def normal(rows, classes, spread=3.0, seed=0):
    source = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(rows, classes, generator=source)
    return scores, torch.randint(classes, (rows,), generator=source)


def assert_largest(rows, k):
    assert selection.refusal(rows, k, asked=True) is None
    values, indices = largest(rows, k)
    assert indices.dtype == torch.int64
    assert values.shape == indices.shape == (len(rows), k)
    torch.testing.assert_close(values, rows.topk(k, dim=1).values, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(values, rows.gather(1, indices), rtol=0, atol=0, equal_nan=True)
    assert (indices.sort(dim=1).values.diff(dim=1) > 0).all()


@given(
    classes=st.integers(32, 700),
    share=st.floats(0, 1),
    digits=st.integers(0, 4),
    special=st.sampled_from([(), (torch.inf,), (-torch.inf,), (torch.nan,), (-torch.nan, torch.inf)]),
    seed=st.integers(0, 10_000),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_largest_are_those_of_torch(classes, share, digits, special, seed):
    """With ties (rounded scores), infinite scores and NaN of either sign."""
    source = torch.Generator().manual_seed(seed)
    rows = torch.randn(4, classes, generator=source).round(decimals=digits)
    for value in special:
        rows.masked_fill_(torch.rand(4, classes, generator=source) < 0.1, value)
    assert_largest(rows, 1 + int(share * (min(classes // 2, MOST) - 1)))


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("classes", [128, 1000, 10_000])
def test_rows_in_unlucky_orders(classes, k):
    """Sorted, equal, of few values, and with all that is large in one group or in a row of neighbours."""
    steps = torch.arange(classes, dtype=torch.float32)
    in_one_group = torch.where(steps % 64 == 3, 1000 + steps, -steps)
    neighbours = torch.where((steps > 50) & (steps < 50 + 2 * k), 7.0, steps / classes)
    few = (steps * 7919) % 3
    rows = torch.stack([steps, -steps, torch.zeros(classes), in_one_group, neighbours, few, -0.0 * steps])
    assert_largest(rows, k)


def test_slopes_go_to_the_largest():
    rows, weights = normal(5, 100)[0], torch.arange(7.0)
    _, ours = with_gradient(lambda s: largest(s, 7)[0] * weights, rows)
    _, torchs = with_gradient(lambda s: s.topk(7, dim=1).values * weights, rows)
    assert torch.equal(ours, torchs)


def test_exponentials_and_their_sum():
    scores, _ = normal(6, 3000)
    scores[1] += 1000
    scores[2] -= 1000
    scores[3, 5:] = -torch.inf
    scores[4] *= 30
    top = scores.topk(3, dim=1)
    factor = torch.randn(6, 1, generator=torch.Generator().manual_seed(1))
    reference = top.values[:, -1:].clamp(min=-1e30)
    for scale in (1.0, 0.3, 20.0):
        assert exponentials.refusal(scores) is None
        kept, total = kept_and_sum(scores, reference, top.indices, scale)
        assert kept.shape == (6, 1)
        wide = (scores.double() - reference) * scale
        exact = wide.scatter(1, top.indices, -torch.inf).exp()
        torch.testing.assert_close(total, exact.sum(1, keepdim=True), rtol=1e-6, atol=1e-30)
        result = multiples(kept, scores, factor, scale).scatter(1, top.indices, 0)
        torch.testing.assert_close(result.double(), factor * exact, rtol=2e-6, atol=1e-6)
    scores[5, 70] = torch.nan
    assert kept_and_sum(scores, reference, top.indices)[1].isnan().flatten().tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("name", LOSSES)
def test_second_derivatives(name):
    scores, target = normal(4, 40, 1.0)
    result = []
    for dtype in (torch.float32, torch.float64):
        leaf = scores.to(dtype).requires_grad_()
        losses = LOSSES[name](leaf, target, 3, reduction="none")
        (slope,) = torch.autograd.grad(losses.square().sum(), leaf, create_graph=True)
        second = torch.autograd.grad(slope.square().sum(), leaf)[0]
        result.append([x.detach().double() for x in (slope, second)])
    for ours, expected in zip(*result, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("gamma", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("k", [1, 2, 10])
def test_smooth_hinge_of_any_width(gamma, k):
    """Where x is 0, is capped, or the margin alone keeps it small; equal scores; a margin per class and its slope."""
    for spread in (0.0, 0.1, 3.0, 30.0):
        scores, target = normal(16, 200, spread)
        scores[::4] = scores[::4].round()
        best = scores.topk(k + 1, dim=1).indices
        target[:8] = best[:8, k // 2]
        scores[4:6] = scores[4:6].scatter_add(1, target[4:6, None], torch.full((2, 1), 5.0))
        margins = torch.linspace(0, 2, 200)
        result = []
        for dtype in (torch.float32, torch.float64):
            leaves = [x.to(dtype).requires_grad_() for x in (scores, margins)]
            losses = functional.smooth_topk_hinge(leaves[0], target, k, gamma, leaves[1], reduction="none")
            slopes = torch.autograd.grad(losses.sum(), leaves)
            result.append([x.detach().double() for x in (losses, *slopes)])
        torch.testing.assert_close(result[0][0], result[1][0], rtol=1e-5, atol=1e-6)
        # An error of t by a rounding of the scores moves x by that over γ.
        scale = 1e-6 * max(1.0, spread) / min(gamma, 1)
        torch.testing.assert_close(result[0][1], result[1][1], rtol=0, atol=scale)
        torch.testing.assert_close(result[0][2], result[1][2], rtol=0, atol=16 * scale)
