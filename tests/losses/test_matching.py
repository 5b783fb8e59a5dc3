"""The factor of the learning rate: against gradients of plain torch, and what it refuses."""

import pytest
import torch

from topk_losses import CrossEntropy, Focal, SmoothTopKSVM, matched_scale
from topk_losses.testing import oracles


def batch(rows=20, classes=12):
    source = torch.Generator().manual_seed(0)
    scores = 0.3 * torch.randn(rows, classes, generator=source, dtype=torch.float64)
    return scores, torch.randint(classes, (rows,), generator=source)


def test_it_is_the_ratio_of_the_gradients_norms():
    scores, labels = batch()
    lengths = []
    for loss in (oracles.cross_entropy, lambda s, y: oracles.smooth_topk_svm(s, y, k=3)):
        leaf = scores.clone().requires_grad_()
        mean = sum(loss(row, label) for row, label in zip(leaf, labels.tolist(), strict=True)) / len(leaf)
        lengths.append(torch.autograd.grad(mean, leaf)[0].norm())
    scale = matched_scale(SmoothTopKSVM(k=3), scores, labels)
    assert scale == pytest.approx(float(lengths[0] / lengths[1]))


@pytest.mark.parametrize("k", [2, 5, 10])
def test_the_smooth_svm_takes_k_times_the_rate_of_a_network_that_knows_nothing(k):
    scores, labels = torch.zeros(6, 1000), torch.arange(6)
    assert matched_scale(SmoothTopKSVM(k), scores, labels) == pytest.approx(k, rel=0.05)


def test_a_loss_that_is_a_multiple_takes_the_inverse():
    scores, labels = batch()
    assert matched_scale(lambda s, y: 4 * CrossEntropy()(s, y), scores, labels) == pytest.approx(0.25)


def test_the_callers_gradients_are_left_alone():
    scores, labels = batch()
    leaf = scores.requires_grad_()
    with torch.no_grad():
        matched_scale(Focal(), leaf, labels)
    assert leaf.grad is None


@pytest.mark.parametrize(
    ("name", "criterion", "change"),
    [
        ("criterion", lambda s, y: 0 * CrossEntropy()(s, y), lambda s: s),
        ("criterion", lambda s, y: CrossEntropy()(s, y) / 0, lambda s: s),
        ("scores", CrossEntropy(), lambda s: s * torch.nan),
        ("scores", CrossEntropy(), lambda s: s.long()),
    ],
)
def test_a_gradient_that_is_of_no_use_is_refused_by_its_argument(name, criterion, change):
    scores, labels = batch()
    with pytest.raises(ValueError, match=rf"^{name} must "):
        matched_scale(criterion, change(scores), labels)
