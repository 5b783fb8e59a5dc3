import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st

from topk_losses.functional import smooth_topk_hinge
from topk_losses.testing import oracles


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("gamma", [1e-4, 0.1, 1.0])
@pytest.mark.parametrize("k", [1, 5, 30])
def test_many_classes_with_any_number_that_have_a_part(spread, gamma, k, sample):
    scores, target = sample(6, 120, spread)
    losses, gradient = with_gradient(
        lambda s: smooth_topk_hinge(s, target, k, gamma, reduction="none"), scores
    )
    expected, slope = with_gradient(
        lambda s: oracles.rowwise(oracles.smooth_topk_hinge, s, target, k=k, gamma=gamma), scores
    )
    # In x = (a - t) / γ the oracle has a and t rounded, up to 1 + s_j - s_y as they are; the loss has the sum of all x.
    rounded = 2.0**-53 * (1 + scores.max() - scores.min()).item() / gamma
    torch.testing.assert_close(losses, expected, rtol=1e-10, atol=1e-10 + 120 * rounded)
    torch.testing.assert_close(gradient, slope, rtol=0, atol=1e-10 + 120 * rounded)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_derivatives(k, sample):
    scores, target = sample(3, 5, 0.5)
    scores.requires_grad_()
    margins = torch.linspace(0.5, 1.5, 5, dtype=torch.float64).requires_grad_()

    def loss(s, m):
        return smooth_topk_hinge(s, target, k, 0.7, m, reduction="none")

    assert torch.autograd.gradcheck(loss, (scores, margins))
    assert torch.autograd.gradgradcheck(loss, (scores, margins))


@given(data=st.data(), classes=st.integers(3, 8), gamma=st.sampled_from([0.01, 1.0, 10.0]))
def test_no_allowed_point_has_a_greater_value(data, classes, gamma):
    """x is in the set if it is a mixture of subsets of at most K classes with 1/K each."""
    k = data.draw(st.integers(1, classes - 1))
    a = torch.tensor(
        data.draw(st.lists(st.floats(-3, 3), min_size=classes - 1, max_size=classes - 1))
    ).double()
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10_000)))
    subsets = torch.zeros(50, classes - 1, dtype=torch.float64)
    best = torch.rand(50, classes - 1, generator=generator).topk(k, dim=1).indices
    subsets.scatter_(1, best, torch.randint(2, best.shape, generator=generator).double() / k)
    x = torch.rand(50, generator=generator, dtype=torch.float64).softmax(0) @ subsets
    row = torch.cat([a.new_zeros(1), a])[None]
    loss = smooth_topk_hinge(row, torch.tensor([0]), k, gamma, margin=0.0)
    assert loss.item() >= (x @ a - gamma / 2 * x @ x).item() - 1e-12


def test_special_rows_among_those_in_which_many_classes_have_a_part(sample):
    """Masked classes, too few of them, a masked target, NaN and +inf beside ordinary rows, all nearly equal."""
    scores, target = sample(7, 60, 0.01)
    target[:] = 3
    scores[0, 10:40] = -torch.inf
    scores[1, 5:] = -torch.inf
    scores[2, 3] = -torch.inf
    scores[3, 50] = torch.nan
    scores[4, 50] = torch.inf
    scores[5, 3] = torch.inf
    losses = smooth_topk_hinge(scores, target, 5, reduction="none")
    _, gradient = with_gradient(
        lambda s: smooth_topk_hinge(s, target, 5, reduction="none").nan_to_num(posinf=0), scores
    )
    for row, kept in ((0, torch.cat([torch.arange(10), torch.arange(40, 60)])), (6, torch.arange(60))):
        expected, slope = with_gradient(lambda s: oracles.smooth_topk_hinge(s, 3, 5), scores[row, kept])
        torch.testing.assert_close(losses[row], expected)
        torch.testing.assert_close(gradient[row, kept], slope)
    assert losses[1] == 0
    assert (gradient[0, 10:40] == 0).all()
    assert (gradient[1] == 0).all()
    assert losses[2] == torch.inf
    assert losses[3:6].isnan().all()


def test_of_two_classes_it_is_hubers_hinge():
    gaps = torch.tensor([-1.0, 0.0, 0.2, 0.49, 0.51, 2.0], dtype=torch.float64)
    scores = torch.stack([-gaps, torch.zeros(6, dtype=torch.float64)], 1)
    losses = smooth_topk_hinge(scores, torch.zeros(6, dtype=torch.int64), 1, 0.5, 0.0, reduction="none")
    expected = torch.where(gaps < 0, 0, torch.where(gaps < 0.5, gaps**2, gaps - 0.25))
    torch.testing.assert_close(losses, expected)


def test_equal_scores_by_hand():
    """With margin 1 and γ: all L - 1 others have ``1 / max(γ, L - 1)``, as long as the cap is above."""
    for gamma, share in ((1.0, 1 / 9), (3.0, 1 / 9), (20.0, 1 / 20)):
        scores, target = torch.zeros(1, 10, dtype=torch.float64), torch.tensor([3])
        loss, gradient = with_gradient(lambda s, of=(target, 4, gamma): smooth_topk_hinge(s, *of), scores)
        assert loss.item() == pytest.approx(9 * (share - gamma / 2 * share**2))
        assert gradient[0, 3].item() == pytest.approx(-9 * share)
        assert gradient[0, 4].item() == pytest.approx(share)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_scores_do_not_swallow_the_margin(dtype, way):
    target = torch.tensor([0, 150])
    expected = smooth_topk_hinge(torch.zeros(2, 200, dtype=dtype), target, k=2)
    assert expected > 0.9
    scores = torch.full((2, 200), 1e16, dtype=dtype)
    shares = torch.nn.functional.one_hot(target, 200).to(dtype)
    for own in (target, shares):
        torch.testing.assert_close(smooth_topk_hinge(scores, own, k=2), expected)
