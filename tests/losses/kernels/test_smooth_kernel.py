"""The smooth top-K SVM's kernels against the reference in log-space."""

import pytest
import torch
from gradients import with_gradient

from topk_losses._smooth_svm.cuda import TritonSmoothSVM
from topk_losses.testing.symmetric import smooth_topk_svm_rows

TEMPERATURES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 100.0)
SPREADS = (0.1, 3.0, 30.0)


def turning_rows(classes, k, tau):
    """float32 scores of each spread, their own where the hinge turns, which Gaussian scores never reach."""
    source = torch.Generator().manual_seed(k)
    offsets = torch.tensor([0.0, 1000.0, -30.0])[:, None]
    scores = offsets + torch.tensor(SPREADS)[:, None] * torch.randn(3, classes, generator=source)
    target = torch.randint(classes, (3,), generator=source)
    others = scores.double().scatter(1, target[:, None], -torch.inf)
    bar = others.topk(k, dim=1).values[:, -1:] + k + 0.5 * k * tau
    return scores.scatter(1, target[:, None], bar.float()), target


def results(loss, scores, target, *args, **keywords):
    return with_gradient(lambda s: loss(s, target, *args, **keywords, reduction="none"), scores)


@pytest.mark.parametrize("tau", TEMPERATURES)
@pytest.mark.parametrize(
    ("k", "classes"), [(1, 300), (2, 33), (5, 1000), (5, 6), (20, 300), (5, 2100), (5, 10_000)]
)
def test_float32(k, classes, tau, device, smooth):
    scores, target = turning_rows(classes, k, tau)
    expected, slope = smooth_topk_svm_rows(scores, target, k, tau)
    losses, gradient = (
        x.cpu().double() for x in results(smooth, scores.to(device), target.to(device), k, tau)
    )
    error = (losses - expected).abs()
    assert (error <= torch.maximum(1e-5 * expected, torch.as_tensor(1e-6 * tau))).all()
    assert (gradient - slope).abs().max() < 1e-6
    assert gradient.sum(1).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tau", [1.0, 0.05])
def test_half_precision_is_read_as_it_is(dtype, tau, smooth, batch):
    """Only the gradient is rounded, on its way out; equal scores abound."""
    scores, target = batch(3, 300, dtype=dtype)
    expected, slope = smooth_topk_svm_rows(scores.cpu(), target.cpu(), 5, tau)
    losses, gradient = results(smooth, scores, target, 5, tau)
    assert losses.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(losses.cpu().double(), expected, rtol=1e-5, atol=1e-6)
    # The interpreter cuts bfloat16 off, where a device rounds it; 6e-8 is float16's least number.
    torch.testing.assert_close(gradient.cpu().double(), slope, rtol=torch.finfo(dtype).eps, atol=6e-8)


@pytest.mark.parametrize("tau", [1.0, 0.01])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_equal_scores(k, tau, device, smooth):
    """More equal scores than there is room for among those taken out, below the largest and as the largest."""
    scores = torch.zeros(3, 70)
    scores[0, :3] = torch.tensor([9.0, 8.0, 7.0])
    scores[1, :40] = 5.0
    target = torch.tensor([2, 0, 69])
    expected, slope = smooth_topk_svm_rows(scores, target, k, tau)
    losses, gradient = results(smooth, scores.to(device), target.to(device), k, tau)
    torch.testing.assert_close(losses.cpu().double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.cpu().double(), slope, rtol=0, atol=1e-6)


@pytest.mark.parametrize("tau", [1.0, 0.05])
def test_second_derivatives_are_those_of_the_plain_operations(tau, smooth, batch):
    scores, target = batch(2, 40)
    margins = torch.linspace(0.5, 1.5, 40, device=scores.device)
    result = []
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype).requires_grad_() for x in (scores, margins)]
        if dtype == torch.float32:
            losses = smooth(leaves[0], target, 3, tau, leaves[1], reduction="none")
        else:
            plain = TritonSmoothSVM(3, tau).plain
            losses = plain(leaves[0], target, leaves[1][target])
        slopes = torch.autograd.grad(losses.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum((slope * slope).sum() for slope in slopes), leaves)
        result.append([x.double() for x in (*slopes, *second)])
    for ours, expected in zip(*result, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4 / tau)
