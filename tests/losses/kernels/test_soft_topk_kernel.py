"""The soft top-K's kernels against plain torch in float64, of which bisection is the oracle."""

import pytest
import torch
from gradients import nothing_waits, with_gradient

from topk_losses._soft_topk.cuda import refusal
from topk_losses._soft_topk.plain import PlainSoftTopK
from topk_losses.functional import soft_topk_loss

FORMS = [
    *((shape, True) for shape in ("logistic", "laplace", "gaussian", "midpoint")),
    *((shape, False) for shape in ("logistic", "laplace", "gaussian", "clip", "power", "midpoint")),
]


def results(rule, scores, target):
    losses, gradient = with_gradient(lambda s: rule.losses(s, target[:, None]).squeeze(1), scores)
    return losses.cpu().double(), gradient.cpu().double()


@pytest.fixture
def rules(device):
    """A function of K, τ, shape and form: the kernels' rule and plain torch's."""
    from topk_losses._soft_topk.cuda import TritonSoftTopK

    return lambda *parameters: (TritonSoftTopK(*parameters), PlainSoftTopK(*parameters))


def agree(rules, scores, target, k, tau, shape, by_log):
    """Within 1e-6 of float64's, the gradient within 2e-6 of its largest entry: rounded sums of terms of up to 1."""
    ours, plain = rules(k, tau, shape, by_log)
    losses, gradient = results(ours, scores, target)
    expected, slope = results(plain, scores.cpu().double(), target.cpu())
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    size = slope.abs().amax(1, keepdim=True).clamp(min=1 / tau)
    wrong = (gradient - slope).abs() > 2e-6 * size
    assert not wrong.any()
    assert torch.equal(gradient.isnan(), slope.isnan())


RANGES = [
    (5, 200, 1.0),
    pytest.param(1, 2, 1e-3, marks=pytest.mark.slow),
    pytest.param(1, 2, 1.0, marks=pytest.mark.slow),
    pytest.param(5, 200, 1e-3, marks=pytest.mark.slow),
    pytest.param(59, 120, 30.0, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("shape", "by_log"), FORMS)
@pytest.mark.parametrize(("k", "classes", "tau"), RANGES)
def test_float32_whatever_the_range(k, classes, tau, shape, by_log, device, rules):
    source = torch.Generator().manual_seed(k)
    spreads = torch.tensor([0.1, 3.0, 1000.0])[:, None]
    scores = (spreads * torch.randn(3, classes, generator=source)).to(device)
    target = torch.randint(classes, (3,), generator=source).to(device)
    agree(rules, scores, target, k, tau, shape, by_log)


@pytest.mark.parametrize(("shape", "by_log"), FORMS[3:])
def test_odd_rows(shape, by_log, device, rules):
    """Masked classes, too few of them, NaN, +inf, equal scores on both sides of the threshold, all of them equal."""
    scores = torch.linspace(2, -2, 12).repeat(7, 1)
    scores[0, 5:] = -torch.inf
    scores[1, 2:] = -torch.inf
    scores[2, 4], scores[3, 4] = torch.nan, torch.inf
    scores[4, :2], scores[4, 2:7] = 3.0, 1.0
    scores[5] = 0.5
    target = torch.tensor([1, 1, 2, 2, 0, 11, 11])
    if shape == "midpoint":  # which of equal scores has the gradient is anybody's choice
        scores, target = scores[[0, 1, 2, 3, 6]], target[[0, 1, 2, 3, 6]]
    agree(rules, scores.to(device), target.to(device), 3, 1.0, shape, by_log)


def test_the_loss_takes_the_kernels(device, batch):
    """Weights, ignored labels, classes that are not last, half precision: the loss as everywhere else."""
    scores, target = batch(6, 20)
    target[1] = -100
    assert refusal(scores, target, 3, "gaussian", True, asked=True) is None
    weight = torch.linspace(0.5, 2, 20, device=device)
    ours = soft_topk_loss(scores, target, 3, 0.7, "gaussian", weight=weight)
    plain = soft_topk_loss(scores.double(), target, 3, 0.7, "gaussian", weight=weight.double())
    torch.testing.assert_close(ours.double(), plain, rtol=2e-6, atol=0)
    image = scores.reshape(3, 2, 20).movedim(2, 1)
    ours = soft_topk_loss(image, target.reshape(3, 2), 3, 0.7, reduction="none")
    torch.testing.assert_close(ours.flatten(), soft_topk_loss(scores, target, 3, 0.7, reduction="none"))
    half = scores.to(torch.bfloat16)
    loss, gradient = with_gradient(lambda s: soft_topk_loss(s, target, 3), half)
    torch.testing.assert_close(loss.double(), soft_topk_loss(half.double(), target, 3))
    assert gradient.isfinite().all()


@pytest.mark.parametrize("shape", ["logistic", "laplace", "gaussian", "midpoint"])
def test_masked_labels_have_no_gradient(shape, batch):
    """The Gaussian's slope is beyond float32 there, and is multiplied by 0."""
    scores, target = batch(3, 12)
    scores[0, target[0]] = -torch.inf
    losses, gradient = with_gradient(
        lambda s: soft_topk_loss(s, target, 3, 0.5, shape, "log", reduction="none"), scores
    )
    assert losses[0] == torch.inf
    assert (gradient[0] == 0).all()
    assert (gradient[1:] != 0).any(1).all()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["logistic", "laplace", "gaussian", "clip", "power", "midpoint"])
def test_cuda_alone(shape):
    """No waiting for the device; float64 and a compiled graph go another way to the same place."""
    target = torch.arange(64, device="cuda") % 50
    scores = torch.randn(64, 50, device="cuda", requires_grad=True)

    def loss(s, y):
        return soft_topk_loss(s, y, 5, 1.3, shape, "error")

    loss(scores, target).backward()  # compiles
    with nothing_waits():
        value = loss(scores, target)
        value.backward()
    torch.testing.assert_close(value.double(), loss(scores.double(), target), rtol=1e-6, atol=1e-6)
    compiled = torch.compile(loss, fullgraph=True)(scores, target)
    torch.testing.assert_close(value, compiled, rtol=1e-5, atol=1e-6)
