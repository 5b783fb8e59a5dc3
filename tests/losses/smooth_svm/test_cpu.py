"""The smooth top-K SVM's kernels for the CPU against the reference in log-space and against plain torch."""

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numba")

from topk_losses._smooth_svm.cpu import refusal
from topk_losses.functional import smooth_topk_svm
from topk_losses.testing.symmetric import smooth_topk_svm_rows

TEMPERATURES = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0, 10.0)


def results(scores, target, *args, **keywords):
    """Losses and gradient of a call that the kernels have to take."""
    assert refusal(scores, target, args[0]) is None
    return with_gradient(lambda s: smooth_topk_svm(s, target, *args, **keywords, reduction="none"), scores)


def in_float64(scores, target, k, tau):
    """The same by plain torch, which float64 scores are left to."""
    return with_gradient(lambda s: smooth_topk_svm(s, target, k, tau, reduction="none"), scores.double())


@pytest.mark.parametrize("k", [1, 2, 5, 20, 50])
@pytest.mark.parametrize("classes", [60, 300])
def test_float32_over_the_grid(k, classes, turning_rows):
    for tau in TEMPERATURES:
        scores, target = turning_rows(classes, k, tau)
        expected, slope = smooth_topk_svm_rows(scores, target, k, tau)
        losses, gradient = (x.double() for x in results(scores, target, k, tau))
        error = (losses - expected).abs()
        assert (error <= torch.maximum(1e-5 * expected, torch.as_tensor(1e-6 * tau))).all()
        assert (gradient - slope).abs().max() < 1e-6
        assert gradient.sum(1).abs().max() < 1e-6


@pytest.mark.parametrize("tau", [1.0, 0.03])
def test_more_classes_than_one_block_holds(tau, turning_rows):
    scores, target = turning_rows(5000, 5, tau)
    expected, slope = smooth_topk_svm_rows(scores[:8], target[:8], 5, tau)
    losses, gradient = results(scores[:8], target[:8], 5, tau)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-6 * tau)
    torch.testing.assert_close(gradient.double(), slope, rtol=0, atol=1e-6)


@given(
    classes=st.integers(2, 80),
    share=st.floats(0, 1),
    tau=st.sampled_from([1e-4, 1e-2, 0.3, 1.0, 30.0]),
    spread=st.sampled_from([0.0, 0.1, 3.0, 30.0]),
    masked=st.floats(0, 0.9),
    digits=st.integers(0, 3),
    seed=st.integers(0, 10_000),
)
def test_as_plain_torch_in_float64(classes, share, tau, spread, masked, digits, seed):
    """Any K, ties (rounded scores), and any number of masked classes, the target's own and nearly all among them."""
    source = torch.Generator().manual_seed(seed)
    k = 1 + int(share * (classes - 2))
    scores = (spread * torch.randn(4, classes, generator=source)).round(decimals=digits)
    scores = scores.masked_fill(torch.rand(4, classes, generator=source) < masked, -torch.inf)
    target = torch.randint(classes, (4,), generator=source)
    losses, gradient = results(scores, target, k, tau)
    expected, slope = in_float64(scores, target, k, tau)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-6 * tau)
    counted = expected < torch.inf  # a masked target has no gradient
    torch.testing.assert_close(gradient[counted].double(), slope[counted], rtol=0, atol=1e-6)
    assert (gradient[~counted] == 0).all()


def test_scores_at_the_end_of_the_range():
    """Very small scores that stand for masks, and gaps that no float32 holds."""
    low = torch.finfo(torch.float32).min
    scores = torch.tensor([[1.0, 0.5, low, -1e30, 0.0], [3e38, -3e38, 0.0, 1.0, 2.0], [low] * 4 + [0.0]])
    target = torch.tensor([0, 2, 4])
    for k in (1, 2, 4):
        losses, gradient = results(scores, target, k, 0.1)
        expected, slope = in_float64(scores, target, k, 0.1)
        torch.testing.assert_close(losses.double(), expected)
        torch.testing.assert_close(gradient.double(), slope, rtol=0, atol=1e-6)


def test_gradients_that_are_not_finite_stay_in_their_rows(turning_rows):
    scores, target = turning_rows(30, 3, 1.0)
    leaf = scores[:4].clone().requires_grad_()
    labels = target[:4].clone()
    labels[1] = -100  # what is ignored has no gradient, whatever it holds
    with torch.no_grad():
        leaf[1] = torch.nan
    losses = smooth_topk_svm(leaf, labels, 3, reduction="none")
    given_gradient = torch.tensor([1.0, torch.nan, torch.inf, 1.0])
    (gradient,) = torch.autograd.grad(losses, leaf, given_gradient)
    assert gradient[[0, 3]].isfinite().all()
    assert (gradient[1] == 0).all()
    assert not gradient[2].isfinite().all()


def test_strides_and_empty_batches(turning_rows):
    scores, target = turning_rows(30, 3, 1.0)
    expected = results(scores, target, 3)
    wide = torch.cat([scores, scores], 1)[:, :30]
    turned = scores.t().contiguous().t()
    for same in (wide, turned):
        for ours, theirs in zip(results(same, target, 3), expected, strict=True):
            assert torch.equal(ours, theirs)
    losses, gradient = results(scores[:0], target[:0], 3)
    assert losses.shape == (0,)
    assert gradient.shape == (0, 30)
