import math

import pytest
import torch

from topk_losses._union.plain import PlainUnion
from topk_losses.functional import topk_grouping, topk_transition
from topk_losses.testing import oracles

LOSSES = {
    "grouping": PlainUnion(3, transition=False),
    "transition": PlainUnion(3, transition=True),
    "detached": PlainUnion(3, transition=True, detach_weight=True),
}


@pytest.mark.parametrize("rule", LOSSES.values(), ids=LOSSES)
def test_the_fused_gradient_is_that_of_plain_operations(rule, sample):
    scores, target = sample(40, 30, 2.0)
    target[:20] = scores[:20].topk(2, dim=1).indices[:, 1]  # half of the labels among the K best
    labels, weights = target[:, None], torch.linspace(0.1, 2, 40, dtype=torch.float64)
    leaf = scores.clone().requires_grad_()
    expected = rule.plain(leaf, labels)
    (slope,) = torch.autograd.grad((weights * expected).sum(), leaf)
    losses, kept = rule.forward(scores, labels, with_gradient=True)
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-12, atol=1e-13)
    (gradient,) = rule.backward(weights, scores, labels, kept)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-13)


def test_a_label_outside_costs_cross_entropy_and_one_inside_the_union(sample):
    scores, target = sample(50, 40)
    inside = (scores.topk(5, dim=1).indices == target[:, None]).any(1)
    entropy = torch.nn.functional.cross_entropy(scores, target, reduction="none")
    for loss in (topk_grouping, topk_transition):
        result = loss(scores, target, 5, reduction="none")
        torch.testing.assert_close(result[~inside], entropy[~inside])
    assert (topk_grouping(scores, target, 5, reduction="none")[inside] < entropy[inside]).all()


def test_confident_scores_in_float32():
    """Far apart scores: finite, and right to float32's rounding of S."""
    scores = torch.tensor([[90.0, 0.0, -200.0, -300.0], [1000.0, 999.0, 400.0, 800.0]])
    for label in range(4):
        target = torch.full((2,), label)
        leaf = scores.clone().requires_grad_()
        losses = topk_transition(leaf, target, 2, reduction="none")
        expected = oracles.rowwise(oracles.topk_transition, scores.double() - scores[:, :1], target, k=2)
        torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=3e-7)
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        assert torch.isfinite(gradient).all()
        assert gradient.sum(1).abs().max() < 1e-6


def test_equal_scores():
    """K of n equal scores: the union has probability K / n, and K labels are in it."""
    scores = torch.zeros(8, 8, dtype=torch.float64)
    losses = topk_grouping(scores, torch.arange(8), 3, reduction="none").sort().values
    expected = torch.tensor([math.log(8 / 3)] * 3 + [math.log(8)] * 5, dtype=torch.float64)
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("detach_weight", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_ignored_sample_with_no_class_after_the_k_best_has_no_gradient(dtype, detach_weight, plain_torch):
    """S is 1, class 0 stands for its label, and 0 times the infinite log q would be NaN."""
    scores = torch.full((1, 6), -torch.inf, dtype=dtype)
    scores[0, 5] = 0.7
    scores.requires_grad_()
    ignored = torch.tensor([-100])
    topk_transition(scores, ignored, 3, detach_weight, reduction="sum").backward()
    assert scores.grad.abs().max() == 0


@pytest.mark.parametrize("name", ["topk_grouping", "topk_transition"])
def test_soft_targets_choose_the_group_by_the_scores(name, way):
    """Though their probabilities are equal in float32."""
    scores = torch.tensor([[1e-8, 2e-8, 0.0]])
    shares = torch.tensor([[0.0, 1.0, 0.0]])
    function = {"topk_grouping": topk_grouping, "topk_transition": topk_transition}[name]
    torch.testing.assert_close(function(scores, shares, k=1), function(scores, torch.tensor([1]), k=1))
    for label in range(3):
        one_hot = torch.nn.functional.one_hot(torch.tensor([label]), 3).float()
        of_label = function(scores, torch.tensor([label]), k=2)
        torch.testing.assert_close(function(scores, one_hot, k=2), of_label)
